// SPDX-License-Identifier: Apache-2.0
// Scripts for Megatron start, and every flag that is read without effect has none.
#include "tests/tool/megatron_scripts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "src/train/options/megatron_table.hpp"
#include "tests/tool/run_program.hpp"

namespace vocabpipe {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::megatron_scripts;
using testing::MegatronScript;
using ::testing::Not;
using testing::Outcome;
using testing::TempFolder;

/// Tests run in a folder with a token file of many documents and GPT-2's kind of vocabulary.
class InFolder : public ::testing::Test {
public:
    static void SetUpTestSuite() {
        folder_ = std::make_unique<TempFolder>();
        std::string text;
        for (int i = 0; i < 20'000; ++i) {  // the smallest part of the splits is 8 of 100,000
            text += "Document " + std::to_string(i) + " of many.\n\n";
        }
        testing::write_file(*folder_ / "documents.txt", text);
        const Outcome made = in_folder("'" VOCABPIPE_PROGRAM
                                       "' data prepare --input documents.txt --output documents "
                                       "--document-separator blank-lines");
        ASSERT_EQ(made.exit_code, 0) << made.error;
        json vocabulary;
        for (int id = 0; id < 257; ++id) vocabulary["token" + std::to_string(id)] = id;
        testing::write_file(*folder_ / "vocab.json", vocabulary.dump());
    }
    static void TearDownTestSuite() { folder_.reset(); }

protected:
    [[nodiscard]] static Outcome in_folder(const std::string& command) {
        return testing::run_shell("cd '" + (*folder_ / "") + "' && " + command);
    }
    [[nodiscard]] static Outcome train(int ranks, const std::string& flags) {
        return in_folder("'" TRAIN_GPT_PROGRAM "' --transport threads --ranks " +
                         std::to_string(ranks) + " " + flags);
    }
    /// Two steps of a small model on one rank.
    [[nodiscard]] static Outcome train_small(const std::string& flags) {
        return train(1,
                     "--data-path documents --vocab-size 257 --num-layers 2 --hidden-size 16 "
                     "--num-attention-heads 2 --seq-length 16 --global-batch-size 2 " +
                         flags);
    }
    /// The line with which it is refused.
    [[nodiscard]] static std::string refused(const std::string& flags) {
        const Outcome outcome = train_small("--train-iters 2 " + flags);
        EXPECT_EQ(outcome.exit_code, 2) << flags << ": " << outcome.error;
        EXPECT_EQ(std::ranges::count(outcome.error, '\n'), 1) << outcome.error;
        return outcome.error;
    }
    /// Loss, norm and rate of every step of a metrics file, as text: equal text, equal bits.
    [[nodiscard]] static std::vector<std::string> curve(const std::string& metrics) {
        std::istringstream lines(testing::read_file(*folder_ / metrics));
        std::vector<std::string> steps;
        for (std::string line; std::getline(lines, line);) {
            const json step = json::parse(line);
            if (!step.contains("loss")) continue;
            steps.push_back(step.at("loss").dump() + " " + step.at("grad_norm").dump() + " " +
                            step.at("lr").dump());
        }
        return steps;
    }

private:
    inline static std::unique_ptr<TempFolder> folder_;
};

std::string joined(const std::vector<std::string>& flags) {
    std::string all;
    for (const std::string& flag : flags) all += flag + " ";
    return all;
}

// --- whole scripts

class MegatronScripts : public InFolder, public ::testing::WithParamInterface<MegatronScript> {
protected:
    /// Its flags, with those that are refused or without.
    [[nodiscard]] static std::string flags(bool with_refused) {
        const std::vector<std::string>& refused = GetParam().refused;
        std::string all;
        for (const std::string& flag : GetParam().flags) {
            const std::string name = flag.substr(0, flag.find(' '));
            const bool is_refused = std::ranges::find(refused, name) != refused.end();
            // --profile is refused before all others.
            if (name == "--profile" || (is_refused && !with_refused)) continue;
            // In bash's arrays quotes stay.
            all += (flag.find('\'') == std::string::npos ? flag : "--split \"'99,1,0'\"") + " ";
        }
        return all;
    }
};

TEST_P(MegatronScripts, TrainForTwentySteps) {
    const Outcome run = train(
        GetParam().ranks, flags(false) + joined(GetParam().instead) + "--metrics metrics.jsonl");
    ASSERT_EQ(run.exit_code, 0) << run.error;
    EXPECT_EQ(curve("metrics.jsonl").size(), 20U);
    EXPECT_EQ(run.error, "");
}

TEST_P(MegatronScripts, AreRefusedByAllNamesOfWhatWouldChangeResults) {
    const Outcome run = train(GetParam().ranks, flags(true));
    for (const std::string& flag : GetParam().refused) {
        if (flag == "--profile") continue;
        EXPECT_EQ(run.exit_code, 2);
        EXPECT_THAT(run.error, HasSubstr(flag + ": " + refusal_of(flag)));
    }
    EXPECT_THAT(run.error, Not(HasSubstr("unknown flag")));
    EXPECT_LT(run.error.size(), 1000U) << "longer lines lose their middle";
}

INSTANTIATE_TEST_SUITE_P(Of, MegatronScripts, ::testing::ValuesIn(megatron_scripts()),
                         [](const auto& info) { return info.param.name; });

// --- one flag

std::string test_name(std::string_view flag) {
    std::string name;
    for (const char c : flag.substr(2)) name += c == '-' ? '_' : c;
    return name;
}

class AcceptedMegatronFlag : public InFolder, public ::testing::WithParamInterface<AcceptedFlag> {
public:
    static void SetUpTestSuite() {
        InFolder::SetUpTestSuite();
        const Outcome plain = train_small(kModel + "--metrics plain.jsonl");
        ASSERT_EQ(plain.exit_code, 0) << plain.error;
    }

protected:
    /// All of these flags hold for it.
    static inline const std::string kModel = "--model-type qwen2 --train-iters 2 ";
};

TEST_P(AcceptedMegatronFlag, ChangesNoResult) {
    const AcceptedFlag& flag = GetParam();
    const std::string only(flag.only);
    const std::string words = flag.takes == Takes::nothing ? ""
                              : flag.takes == Takes::words ? "0 1"
                              : only == "0"                ? "0.0"
                              : only.empty()               ? "8"
                                                           : only;
    const Outcome run =
        train_small(kModel + "--metrics one.jsonl " + std::string(flag.name) + " " + words);
    ASSERT_EQ(run.exit_code, 0) << run.error;
    EXPECT_EQ(curve("one.jsonl"), curve("plain.jsonl"));
    EXPECT_EQ(curve("one.jsonl").size(), 2U);
}

INSTANTIATE_TEST_SUITE_P(Of, AcceptedMegatronFlag,
                         ::testing::ValuesIn(accepted_flags().begin(), accepted_flags().end()),
                         [](const auto& info) { return test_name(info.param.name); });

class RefusedMegatronFlag : public InFolder, public ::testing::WithParamInterface<RefusedFlag> {};

TEST_P(RefusedMegatronFlag, IsNamedWithARemedy) {
    const std::string name(GetParam().name);
    EXPECT_THAT(refused(name + " 1"), HasSubstr(name + ": " + std::string(GetParam().why)));
}

INSTANTIATE_TEST_SUITE_P(Of, RefusedMegatronFlag,
                         ::testing::ValuesIn(refused_flags().begin(), refused_flags().end()),
                         [](const auto& info) { return test_name(info.param.name); });

class MegatronFlagValues : public InFolder {};

TEST_F(MegatronFlagValues, ThatWouldChangeResultsAreRefused) {
    const struct {
        const char *flags, *says;
    } rows[] = {
        {"--attention-dropout 0.1", "--attention-dropout 0.1: there is no dropout; use 0.0"},
        {"--hidden-dropout 0.1", "--hidden-dropout 0.1: there is no dropout; use 0.0"},
        {"--cp-comm-type p2p",
         "--cp-comm-type p2p: must be allgather or a2a; there are no rings: allgather brings the "
         "same keys and values"},
        {"--softmax-type off-by-one",
         "--softmax-type off-by-one: must be one of vanilla, learnable"},
        {"--optimizer sgd", "--optimizer sgd: AdamW is the only one; use adam"},
        {"--moe-router-dtype fp64", "--moe-router-dtype fp64: scores of routers are fp32"},
        {"--moe-router-load-balancing-type sinkhorn",
         "--moe-router-load-balancing-type sinkhorn: experts are balanced by aux_loss; use it"},
        {"--disable-bias-linear",
         "--disable-bias-linear: --model-type gpt2 has biases; remove the flag, or use"},
        {"--model-type llama --add-qkv-bias",
         "--add-qkv-bias: --model-type llama has no biases of q, k and v; remove the flag, or use"},
        {"--no-position-embedding",
         "--no-position-embedding: --model-type gpt2 has learned positions; use "
         "--position-embedding-type rope"},
        {"--distributed-timeout-minutes 1 --distributed-timeout-seconds 30",
         "--distributed-timeout-minutes 1: conflicts with --distributed-timeout-seconds 30; use "
         "only one"},
        {"--distributed-timeout-minutes 0", "--distributed-timeout-minutes 0: must be a finite"},
        {"--schedule gpipe --enable-zero-bubble",
         "--schedule gpipe: conflicts with --enable-zero-bubble, which means zb; use only one"},
        {"--zero-bubble-max-pending-backward 4",
         "--zero-bubble-max-pending-backward 4: requires --enable-zero-bubble; add it, or use "
         "--memory-limit"},
        {"--enable-zero-bubble --zero-bubble-max-pending-backward 4 --memory-limit 3",
         "--memory-limit 3: conflicts with --zero-bubble-max-pending-backward 4; use only one"},
        {"--zero-stage 2 --data-parallel-sharding-strategy optim_grads_params",
         "--zero-stage 2: conflicts with --data-parallel-sharding-strategy optim_grads_params, "
         "which means 3; use only one"},
        {"--data-parallel-sharding-strategy no_shard",
         "--data-parallel-sharding-strategy no_shard: must be one of optim, optim_grads, "
         "optim_grads_params"},
        {"--zero-stage 4", "--zero-stage 4: must be at most 3"},
        {"--profile --profile-step-start 4",
         "--profile: expected a value, got the flag --profile-step-start; remove Megatron's "
         "switch, "
         "or name a FILE for measured costs"},
        {"--chunks 2 --schedule 1f1b", "--chunks 2: does not match 1f1b"},
    };
    for (const auto& [flags, says] : rows) EXPECT_THAT(refused(flags), HasSubstr(says));
}

TEST_F(MegatronFlagValues, AreRefusedInConfigFilesToo) {
    ASSERT_EQ(in_folder("echo 'fp16 = true' > fp16.toml").exit_code, 0);
    EXPECT_THAT(refused("--config fp16.toml"),
                HasSubstr("fp16.toml:1: --fp16: there is no fp16; use --bf16"));
}

TEST_F(MegatronFlagValues, DropAnOptimizerOnlyWhereThereIsNone) {
    const std::string resumed = "--save steps --load steps --no-load-optim ";
    const Outcome first = train_small(resumed + "--train-iters 2");
    ASSERT_EQ(first.exit_code, 0) << first.error;
    EXPECT_THAT(refused(resumed + "--train-iters 4"),
                HasSubstr("--no-load-optim: --load steps is a saved step, which goes on with its "
                          "optimizer; remove the flag, or add --finetune"));
    EXPECT_EQ(train_small("--load steps --finetune --no-load-optim --train-iters 1").exit_code, 0);
}

// --- what flags mean together

class MegatronMeanings : public InFolder {
protected:
    [[nodiscard]] static std::string trained(int ranks, const std::string& flags,
                                             const std::string& metrics) {
        const Outcome run =
            train(ranks,
                  "--data-path documents --vocab-size 257 --seq-length 16 --hidden-size 16 "
                  "--num-attention-heads 2 --global-batch-size 8 --metrics " +
                      metrics + " " + flags);
        EXPECT_EQ(run.exit_code, 0) << flags << ": " << run.error;
        return run.output;
    }
};

TEST_F(MegatronMeanings, OfSeveralStagesPerRankIsTheInterleavedSchedule) {
    const std::string model = "--num-layers 4 --train-iters 2 ";
    (void)trained(2, model + "--schedule interleaved --chunks 2", "said.jsonl");
    for (const std::string flags : {"--num-layers-per-virtual-pipeline-stage 1",
                                    "--num-virtual-stages-per-pipeline-rank 2"}) {
        EXPECT_THAT(trained(2, model + flags, "meant.jsonl"), HasSubstr("interleaved, vocab mode"));
        EXPECT_EQ(curve("meant.jsonl"), curve("said.jsonl")) << flags;
    }
    const std::string layout = "--pipeline-model-parallel-layout 'Et|t|t|tL'";
    EXPECT_THAT(trained(2, model + layout, "layout.jsonl"), HasSubstr("interleaved, vocab mode"));
    for (const std::string flags :
         {"--num-layers-per-virtual-pipeline-stage 2", "--num-virtual-stages-per-pipeline-rank 1",
          "--pipeline-model-parallel-layout 'Ett|ttL'"}) {
        EXPECT_THAT(trained(2, model + flags, "one.jsonl"), HasSubstr("1f1b, vocab mode")) << flags;
    }
}

TEST_F(MegatronMeanings, OfZeroBubblesAreTheirSchedules) {
    const std::string model = "--num-layers 4 --train-iters 2 --enable-zero-bubble ";
    EXPECT_THAT(trained(2, model + "--zero-bubble-max-pending-backward 3", "zb.jsonl"),
                HasSubstr("zb, vocab mode"));
    EXPECT_THAT(trained(2, model + "--zero-bubble-v-schedule", "zbv.jsonl"),
                HasSubstr("zb-v, vocab mode"));
}

TEST_F(MegatronMeanings, OfShardingStrategiesAreZeroStages) {
    const std::string model =
        "--num-layers 2 --train-iters 2 --pipeline-model-parallel-size 1 --schedule interleaved "
        "--chunks 2 ";
    for (const auto& [strategy, stage] :
         {std::pair{"optim", "1"}, {"optim_grads", "2"}, {"optim_grads_params", "3"}}) {
        const std::string said =
            trained(2, model + "--use-megatron-fsdp --data-parallel-sharding-strategy " + strategy,
                    "said.jsonl");
        (void)trained(2, model + "--zero-stage " + stage, "meant.jsonl");
        EXPECT_EQ(curve("said.jsonl"), curve("meant.jsonl")) << strategy;
        const std::string text = std::string("ZeRO ") + stage;
        EXPECT_EQ(said.find(text) != std::string::npos, std::string(stage) != "1") << said;
    }
}

TEST_F(MegatronMeanings, OfExpertsWithLlamasPartsIsMixtral) {
    const std::string parts =
        "--num-layers 2 --train-iters 2 --swiglu --normalization RMSNorm "
        "--position-embedding-type rope --rotary-base 10000 ";
    const std::string experts = "--num-experts 2 --moe-router-topk 2 ";
    (void)trained(1, parts + experts, "parts.jsonl");
    (void)trained(1, parts + experts + "--model-type mixtral", "mixtral.jsonl");
    EXPECT_EQ(curve("parts.jsonl"), curve("mixtral.jsonl"));
    EXPECT_THAT(refused("--swiglu " + experts), HasSubstr("(deepseek_v3), or set --model-type"));
}

TEST_F(MegatronMeanings, OfSamplesAreStepsOfAsMany) {
    const std::string model = "--num-layers 2 --lr 0.01 --min-lr 0.001 ";
    (void)trained(1, model + "--train-iters 6 --lr-decay-iters 5 --lr-warmup-iters 2",
                  "steps.jsonl");
    (void)trained(1, model + "--train-samples 50 --lr-decay-samples 40 --lr-warmup-samples 16",
                  "samples.jsonl");
    EXPECT_EQ(curve("steps.jsonl").size(), 6U);
    EXPECT_EQ(curve("samples.jsonl"), curve("steps.jsonl"));
    const std::string wsd = "--lr-decay-style WSD --lr-warmup-fraction 0.25 ";
    (void)trained(1, model + wsd + "--train-iters 8 --lr-wsd-decay-iters 3", "steps.jsonl");
    (void)trained(1, model + wsd + "--train-samples 64 --lr-wsd-decay-samples 24", "samples.jsonl");
    EXPECT_EQ(curve("samples.jsonl"), curve("steps.jsonl"));
}

TEST_F(MegatronMeanings, OfSamplesAreRefusedWhereOthersCountSteps) {
    const auto refused_samples = [](const std::string& flags) {
        const Outcome run = train_small(flags);
        EXPECT_EQ(run.exit_code, 2) << flags;
        return run.error;
    };
    EXPECT_THAT(refused_samples("--train-samples 10 --train-iters 5"),
                HasSubstr("--train-samples 10: conflicts with --train-iters 5; use only one"));
    EXPECT_THAT(refused_samples("--train-samples 1"),
                HasSubstr("--train-samples 1: is less than one step of --global-batch-size 2"));
    EXPECT_THAT(refused_samples("--train-samples 10 --lr-decay-iters 5"),
                HasSubstr("--lr-decay-iters 5: counts steps, but --train-samples samples; use "
                          "--lr-decay-samples"));
    EXPECT_THAT(refused_samples("--train-samples 10 --lr-warmup-iters 5"),
                HasSubstr("use --lr-warmup-samples"));
    EXPECT_THAT(refused_samples("--lr-warmup-samples 5"),
                HasSubstr("--lr-warmup-samples 5: counts samples, but --train-iters steps; use "
                          "--lr-warmup-iters"));
    EXPECT_THAT(refused_samples("--train-samples 10 --lr-warmup-samples 11"),
                HasSubstr("--lr-warmup-samples 11: must be between 0 and --train-samples 10"));
}

TEST_F(MegatronMeanings, OfMissingFlagsAreToldToScriptsForMegatron) {
    const auto told = [](const std::string& flags) {
        const Outcome run = train_small("--train-iters 1 " + flags);
        EXPECT_EQ(run.exit_code, 0) << run.error;
        std::istringstream lines(run.output);
        for (std::string line; std::getline(lines, line) && !line.starts_with(" iteration");) {
            EXPECT_LE(line.size(), 120U) << line;
        }
        return testing::unwrapped(run.output);
    };
    const std::string head = "not given, and not as Megatron has it: ";
    EXPECT_THAT(told("--manual-gc"),
                HasSubstr(head + "--adam-beta2 0.95 (there 0.999), --weight-decay 0.1 (there "
                                 "0.01), --lr-decay-style cosine (there linear), "
                                 "--attention-dropout 0 (there 0.1), --hidden-dropout 0 (there "
                                 "0.1), --pipeline-model-parallel-size all ranks (there 1) "));
    EXPECT_THAT(told("--num-workers 2 --adam-beta2 0.95 --weight-decay 0.1 --lr-decay-style cosine "
                     "--attention-dropout 0 --pipeline-model-parallel-size 1"),
                HasSubstr(head + "--hidden-dropout 0 (there 0.1) "));
    EXPECT_THAT(told("--model-type mixtral --num-experts 2 --manual-gc"),
                HasSubstr("--rotary-base 1e+06 (there 10000), --disable-bias-linear no biases "
                          "(there biases)"));
    EXPECT_THAT(told(""), Not(HasSubstr(head)));
}

}  // namespace
}  // namespace vocabpipe
