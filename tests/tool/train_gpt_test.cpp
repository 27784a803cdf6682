// SPDX-License-Identifier: Apache-2.0
// train_gpt as a user runs it: same bits wherever they must be, reports that say the truth.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/tool/run_program.hpp"

namespace vocabpipe {
namespace {

using nlohmann::json;
using testing::Outcome;
using testing::TempFolder;

/// A folder with a token file of bytes, 256 ids and an end of document.
class TrainGpt : public ::testing::Test {
protected:
    TrainGpt() {
        std::string text;
        for (int i = 0; i < 2000; ++i) {
            text += "Rank " + std::to_string(i % 7) + " sends microbatch " + std::to_string(i % 5) +
                    " to rank " + std::to_string((i + 1) % 7) + ". ";
        }
        testing::write_file(folder_ / "text.txt", text);
        const Outcome made = testing::run_shell("cd '" + (folder_ / "") +
                                                "' && '" VOCABPIPE_PROGRAM
                                                "' data prepare --input text.txt --output set");
        EXPECT_EQ(made.exit_code, 0) << made.error;
    }

    /// Runs in the folder; the model has 4 layers and trains for 6 steps of 6 microbatches.
    [[nodiscard]] Outcome train(const std::string& launcher, const std::string& arguments) const {
        return testing::run_shell(
            "cd '" + (folder_ / "") + "' && " + launcher +
            " '" TRAIN_GPT_PROGRAM
            "' --data-path set --vocab-size 257 --num-layers 4 --hidden-size 32 "
            "--num-attention-heads 2 --seq-length 16 --global-batch-size 6 --train-iters 6 --lr "
            "1e-2 "
            "--distributed-timeout-seconds 30 " +
            arguments);
    }
    [[nodiscard]] Outcome threads(int ranks, const std::string& arguments) const {
        return train("", "--transport threads --ranks " + std::to_string(ranks) + " " + arguments);
    }
    [[nodiscard]] Outcome mpi(int ranks, const std::string& arguments) const {
        return train("mpirun --oversubscribe -np " + std::to_string(ranks), arguments);
    }

    /// A second token file, "documents", of so many short documents; the exit code.
    [[nodiscard]] int prepare_documents(int count) const {
        std::string documents;
        for (int i = 0; i < count; ++i) {
            documents += "Document " + std::to_string(i) + " of many.\n\n";
        }
        testing::write_file(folder_ / "documents.txt", documents);
        return testing::run_shell("cd '" + (folder_ / "") +
                                  "' && '" VOCABPIPE_PROGRAM
                                  "' data prepare --input documents.txt --output documents "
                                  "--document-separator blank-lines")
            .exit_code;
    }

    /// Loss and gradient norm of every step of a metrics file, as text: equal text, equal bits.
    [[nodiscard]] std::vector<std::string> curve(const std::string& metrics) const {
        std::istringstream lines(testing::read_file(folder_ / metrics));
        std::vector<std::string> steps;
        for (std::string line; std::getline(lines, line);) {
            const json step = json::parse(line);
            steps.push_back(step.at("loss").dump() + " " + step.at("grad_norm").dump());
        }
        return steps;
    }

    TempFolder folder_;
};

TEST_F(TrainGpt, SaysThatASaveIsTooLongForTheGracePeriod) {
    const std::string flags = "--save saved --train-iters 3 --sigterm-grace-seconds ";
    EXPECT_THAT(threads(2, flags + "0.0001").output,
                ::testing::HasSubstr("OMPI_MCA_odls_base_sigkill_timeout=2"));
    EXPECT_THAT(threads(2, "--save again --train-iters 3 --sigterm-grace-seconds 1000").output,
                ::testing::Not(::testing::HasSubstr("sigkill_timeout")));
}

TEST_F(TrainGpt, RefusesLaunchersWhoseProcessesWouldEachTrainAlone) {
    const auto started = [&](const std::string& environment, const std::string& flags) {
        return train("env " + environment, flags + " --train-iters 1");
    };
    const std::string torchrun = "WORLD_SIZE=2 RANK=0 LOCAL_RANK=0";
    for (const std::string environment :
         {torchrun.c_str(), "WORLD_SIZE=2", "SLURM_NTASKS=2 SLURM_PROCID=0",
          "SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0", "PMI_SIZE=2 PMI_RANK=0"}) {
        const Outcome run = started(environment, "");
        EXPECT_EQ(run.exit_code, 2) << environment << run.output;
        EXPECT_THAT(run.error, ::testing::HasSubstr("each would work by itself; type "))
            << environment;
        EXPECT_THAT(run.error, ::testing::HasSubstr(" -n 2 and this command")) << environment;
    }
    EXPECT_EQ(started("WORLD_SIZE=2 RANK=1", "").error, "") << "the first one speaks for all";
    EXPECT_EQ(started(torchrun, "--transport threads --ranks 2").exit_code, 2);
    EXPECT_EQ(started("PMI_SIZE=2 PMI_RANK=0", "--transport threads --ranks 2").exit_code, 2);
    // A batch script, in which Slurm sets the variables of its tasks, too.
    EXPECT_EQ(started("SLURM_NTASKS=2 SLURM_PROCID=0", "--transport threads --ranks 2").exit_code,
              0);
    const Outcome mpirun =
        train("env WORLD_SIZE=2 SLURM_NTASKS=2 PMI_SIZE=2 mpirun --oversubscribe -np 2",
              "--train-iters 1");
    EXPECT_EQ(mpirun.exit_code, 0) << mpirun.error;
    EXPECT_EQ(started("WORLD_SIZE=1 RANK=0 SLURM_NTASKS=1", "").exit_code, 0);
}

TEST_F(TrainGpt, SaysWhichStepsAndEvaluationsHaveNoLabels) {
    const auto write_tokens = [&](const char* name, int ends, int others) {
        std::string bytes;
        for (int i = 0; i < ends + others; ++i) {
            bytes += i < ends ? '\1' : static_cast<char>(2 + i % 90);
            bytes += '\0';
        }
        testing::write_file(folder_ / name, bytes);
    };
    write_tokens("ends.u16", 16 * 12 + 1, 0);
    write_tokens("some.u16", 16 * 6, 16 * 30 + 1);
    const auto masked = [&](const std::string& data, const std::string& flags) {
        return testing::run_shell(
            "cd '" + (folder_ / "") +
            "' && '" TRAIN_GPT_PROGRAM
            "' --transport threads --ranks 2 --data-format raw-u16 --eod-token-id 1 "
            "--eod-mask-loss --vocab-size 257 --num-layers 4 --hidden-size 32 "
            "--num-attention-heads 2 --seq-length 16 --global-batch-size 6 " +
            data + flags);
    };
    const Outcome none = masked("--data-path ends.u16 ", "--train-iters 2");
    EXPECT_EQ(none.exit_code, 3);
    EXPECT_THAT(none.error, ::testing::HasSubstr("2 of 2 steps were skipped because no token had"));
    EXPECT_THAT(none.output, ::testing::HasSubstr("step 1: no labels"));
    EXPECT_THAT(none.output, ::testing::HasSubstr("lm loss nan"));

    const Outcome packed =
        masked("--data-path some.u16 ", "--train-iters 1 --packing-strategy bfd");
    EXPECT_EQ(packed.exit_code, 0) << packed.error;
    EXPECT_THAT(packed.output,
                ::testing::HasSubstr("train data: 1 document in 30 sequences of 16 tokens, 0.00 % "
                                     "padding;"));

    const Outcome valid = masked("--train-data-path some.u16 --valid-data-path ends.u16 ",
                                 "--metrics m.jsonl --train-iters 1");
    EXPECT_EQ(valid.exit_code, 0) << valid.error;
    EXPECT_THAT(valid.output, ::testing::HasSubstr("validation loss at iteration 1 | no labels: "));
    EXPECT_THAT(testing::read_file(folder_ / "m.jsonl"),
                ::testing::Not(::testing::HasSubstr("eval_loss")));
}

TEST_F(TrainGpt, GivesTheSameBitsOnThreadsAndUnderMpirun) {
    for (const std::string mode : {"none", "interlaced", "one_barrier", "two_barriers"}) {
        const std::string flags = " --dtype bf16 --vocab-mode " + mode;
        ASSERT_EQ(threads(3, "--metrics threads.jsonl" + flags).exit_code, 0);
        const Outcome launched = mpi(3, "--metrics mpi.jsonl" + flags);
        ASSERT_EQ(launched.exit_code, 0) << launched.error;
        EXPECT_EQ(curve("threads.jsonl").size(), 6U);
        EXPECT_EQ(curve("threads.jsonl"), curve("mpi.jsonl")) << mode;
    }
}

TEST_F(TrainGpt, TrainsWithTheZLossInEveryVocabMode) {
    const auto first_loss = [&](const char* metrics) { return std::stod(curve(metrics).at(0)); };
    for (const std::string mode : {"none", "interlaced", "one_barrier", "two_barriers"}) {
        const std::string flags = " --vocab-mode " + mode;
        ASSERT_EQ(threads(2, "--metrics plain.jsonl" + flags).exit_code, 0);
        const Outcome run = threads(2, "--metrics z.jsonl --z-loss 0.01" + flags);
        ASSERT_EQ(run.exit_code, 0) << run.error;
        // Initial logits are about 0: their variance is 32 * 0.02^2.
        const double log_z = std::log(257) + 32 * 0.02 * 0.02 / 2;
        EXPECT_NEAR(first_loss("z.jsonl") - first_loss("plain.jsonl"), 0.01 * log_z * log_z, 2e-3);
        EXPECT_NE(curve("z.jsonl").at(0).substr(curve("z.jsonl").at(0).find(' ')),
                  curve("plain.jsonl").at(0).substr(curve("plain.jsonl").at(0).find(' ')))
            << mode << ": gradient norms";
    }
}

TEST_F(TrainGpt, TrainsAndReportsEveryDepthOfMultiTokenPrediction) {
    const std::string flags = " --model-type llama --mtp-num-layers 2 --mtp-loss-scaling-factor ";
    std::vector<std::string> curves;
    for (const std::string mode : {"one_barrier", "two_barriers", "interlaced"}) {
        const Outcome run = threads(2, "--metrics m.jsonl --vocab-mode " + mode + flags + "0.3");
        ASSERT_EQ(run.exit_code, 0) << run.error;
        EXPECT_THAT(run.output, ::testing::ContainsRegex("mtp_1 loss [0-9.]+[ \n]+\\| mtp_2 loss"));
        std::istringstream lines(testing::read_file(folder_ / "m.jsonl"));
        for (std::string line; std::getline(lines, line);) {
            const json step = json::parse(line);
            // The last one or two of 16 tokens have no such label; initial logits are about 0.
            EXPECT_LT(step.at("mtp_1_loss").get<double>(), std::log(257) * 1.01) << line;
            EXPECT_GT(step.at("mtp_1_loss").get<double>(),
                      step.at("mtp_2_loss").get<double>() * 0.9);
            EXPECT_GT(step.at("mtp_2_loss").get<double>(), 2);
        }
        curves.push_back(curve("m.jsonl").at(5));
        EXPECT_EQ(curves.front(), curves.back()) << mode;
    }
    ASSERT_EQ(threads(2, "--metrics other.jsonl" + flags + "3").exit_code, 0);
    EXPECT_NE(curve("other.jsonl")[5], curves.front()) << "the factor decides";
    const Outcome mpi_run = mpi(2, "--metrics mpi.jsonl" + flags + "0.3");
    ASSERT_EQ(mpi_run.exit_code, 0) << mpi_run.error;
    EXPECT_EQ(curve("mpi.jsonl")[5], curves.front());
    // Sums of tensor ranks round otherwise.
    const auto loss_at_end = [&](const std::string& file) {
        std::istringstream lines(testing::read_file(folder_ / file));
        std::string line, last;
        while (std::getline(lines, line)) last = line;
        return json::parse(last).at("mtp_2_loss").get<double>();
    };
    const Outcome team =
        mpi(4, "--tensor-model-parallel-size 2 --metrics team.jsonl" + flags + "0.3");
    ASSERT_EQ(team.exit_code, 0) << team.error;
    EXPECT_NEAR(loss_at_end("team.jsonl"), loss_at_end("mpi.jsonl"), 1e-4);
}

TEST_F(TrainGpt, RefusesDepthsWithWhatTheyAreNotSupportedWith) {
    for (const auto& [flags, what] :
         {std::pair("", "learned positions or scaled embeddings (gpt2); use a family with rotary"),
          std::pair("--model-type llama --context-parallel-size 2",
                    "--context-parallel-size 2; use 1"),
          std::pair("--model-type llama --lora-rank 2", "adapters; train all weights")}) {
        const Outcome run = train(
            "", std::string("--transport threads --ranks 2 --mtp-num-layers 1 --train-iters 1 ") +
                    flags);
        EXPECT_EQ(run.exit_code, 2) << flags << run.output;
        EXPECT_THAT(run.error, ::testing::HasSubstr("--mtp-num-layers 1: is not supported with " +
                                                    std::string(what)))
            << flags;
    }
}

TEST_F(TrainGpt, RebuildsTheOrderFromMeasuredCostsWithoutChangingABit) {
    ASSERT_EQ(threads(4, "--metrics given.jsonl --schedule-costs 1,2").exit_code, 0);
    const Outcome measured = threads(4, "--metrics auto.jsonl --schedule-costs auto");
    ASSERT_EQ(measured.exit_code, 0) << measured.error;
    EXPECT_THAT(measured.output, ::testing::HasSubstr("schedule rebuilt from measured costs"));
    EXPECT_EQ(curve("given.jsonl"), curve("auto.jsonl"));
}

TEST_F(TrainGpt, EvaluatesAlikeOnThreadsAndUnderMpirun) {
    ASSERT_EQ(prepare_documents(200), 0);
    const std::string flags =
        " --data-path documents --split 80,20 --eval-interval 4 --eval-iters 2 "
        "--rampup-batch-size 2 2 8";
    const auto evaluations = [this](const char* metrics) {
        std::istringstream lines(testing::read_file(folder_ / metrics));
        std::vector<std::string> found;
        for (std::string line; std::getline(lines, line);) {
            const json read = json::parse(line);
            if (!read.contains("eval_loss")) continue;
            found.push_back(read.at("step").dump() + " " + read.at("eval_loss").dump());
        }
        return found;
    };
    ASSERT_EQ(threads(2, "--metrics threads.jsonl" + flags).exit_code, 0);
    const Outcome launched = mpi(2, "--metrics mpi.jsonl --save saved" + flags);
    ASSERT_EQ(launched.exit_code, 0) << launched.error;
    EXPECT_THAT(launched.output, ::testing::HasSubstr(" validation loss at iteration 4 | lm loss "
                                                      "value: "));
    const std::vector<std::string> expected = evaluations("mpi.jsonl");
    ASSERT_EQ(expected.size(), 2U);
    EXPECT_EQ(evaluations("threads.jsonl"), expected);
    const Outcome only = threads(2, "--load saved --skip-train --metrics only.jsonl" + flags);
    ASSERT_EQ(only.exit_code, 0) << only.error;
    EXPECT_EQ(evaluations("only.jsonl"), std::vector{expected.back()});
}

TEST_F(TrainGpt, TrainsReplicasOfAPipelineAlikeOnThreadsAndUnderMpirun) {
    const std::string flags = " --pipeline-model-parallel-size 2 --dtype bf16 --metrics ";
    const Outcome on_threads = threads(4, flags + "threads.jsonl");
    ASSERT_EQ(on_threads.exit_code, 0) << on_threads.error;
    EXPECT_THAT(on_threads.output, ::testing::HasSubstr("2 replicas x 2 ranks"));
    const Outcome launched = mpi(4, flags + "mpi.jsonl");
    ASSERT_EQ(launched.exit_code, 0) << launched.error;
    EXPECT_EQ(curve("mpi.jsonl"), curve("threads.jsonl"));
}

TEST_F(TrainGpt, HasTheSameCurveWithEveryScheduleThatAccumulatesInOrder) {
    ASSERT_EQ(threads(2, "--metrics 1f1b.jsonl").exit_code, 0);
    for (const std::string schedule :
         {"interleaved --chunks 2", "interleaved --num-layers-per-virtual-pipeline-stage 1",
          "eager-1f1b --warm-up-depth 3", "zb-h1", "zb --memory-limit 3", "zb-v"}) {
        const Outcome run = threads(2, "--metrics other.jsonl --schedule " + schedule);
        ASSERT_EQ(run.exit_code, 0) << schedule << run.error;
        EXPECT_EQ(curve("1f1b.jsonl"), curve("other.jsonl")) << schedule;
    }
}

TEST_F(TrainGpt, HasTheSameCurveWhateverItRecomputes) {
    for (const std::string flags : {"--dtype bf16", "--schedule v-half --model-type llama"}) {
        ASSERT_EQ(threads(2, "--metrics kept.jsonl --report kept.json " + flags).exit_code, 0);
        for (const std::string recompute :
             {"--recompute-activations", "--recompute-granularity selective",
              "--recompute-granularity full"}) {
            const Outcome run =
                threads(2, "--metrics again.jsonl --report again.json --profile p.json " + flags +
                               " " + recompute);
            ASSERT_EQ(run.exit_code, 0) << run.error;
            EXPECT_EQ(curve("kept.jsonl"), curve("again.jsonl")) << flags << " " << recompute;
            const auto planned = [&](const char* report) {
                return json::parse(testing::read_file(folder_ / report))
                    .at("ranks")
                    .at(0)
                    .at("live_peak_bytes")
                    .get<int64_t>();
            };
            EXPECT_LT(planned("again.json"), planned("kept.json")) << flags << " " << recompute;
            const json profile = json::parse(testing::read_file(folder_ / "p.json"));
            EXPECT_GT(profile.at("costs").at("stage_ns").at(1).at("R"), 0) << recompute;
            EXPECT_GT(profile.at("sizes").at("stages").at(1).at("recomputed"), 0) << recompute;
        }
    }
    EXPECT_THAT(threads(2,
                        "--schedule-costs p.json --schedule v-half --model-type llama "
                        "--recompute-granularity selective")
                    .error,
                ::testing::HasSubstr("was measured with --recompute-granularity full, not "
                                     "selective; measure with the flags of this run"));
    EXPECT_THAT(threads(2, "--recompute-activations --recompute-granularity full").error,
                ::testing::HasSubstr("conflicts with --recompute-activations"));
}

TEST_F(TrainGpt, RunsASchedulesFileAndALayoutLikeTheScheduleTheyDescribe) {
    const Outcome shown =
        testing::run_shell("cd '" + (folder_ / "") +
                           "' && '" VOCABPIPE_PROGRAM
                           "' schedule show zb-v --pp 2 --microbatches 6 --format csv > zbv.csv");
    ASSERT_EQ(shown.exit_code, 0) << shown.error;
    for (const std::string mode : {"none", "two_barriers"}) {
        const std::string flags = " --vocab-mode " + mode;
        ASSERT_EQ(threads(2, "--metrics name.jsonl --schedule zb-v" + flags).exit_code, 0);
        const Outcome file = threads(2, "--metrics file.jsonl --schedule zbv.csv" + flags);
        ASSERT_EQ(file.exit_code, 0) << file.error;
        EXPECT_EQ(curve("name.jsonl"), curve("file.jsonl")) << mode;
    }
    // R in a file recomputes everything.
    const Outcome recomputing = testing::run_shell(
        "cd '" + (folder_ / "") +
        "' && '" VOCABPIPE_PROGRAM
        "' schedule show 1f1b --pp 2 --microbatches 6 --vocab-mode one_barrier --vocab-size 257 "
        "--recompute-granularity full --format json > r.json");
    ASSERT_EQ(recomputing.exit_code, 0) << recomputing.error;
    const Outcome file = threads(2, "--metrics r.jsonl --schedule r.json --profile p.json");
    ASSERT_EQ(file.exit_code, 0) << file.error;
    EXPECT_THAT(file.output, ::testing::HasSubstr(" parameters, full recomputation\n"));
    const json profile = json::parse(testing::read_file(folder_ / "p.json"));
    EXPECT_EQ(profile.at("sizes").at("stages").at(1).at("saved"), 0);
    EXPECT_THAT(threads(2, "--schedule r.json --recompute-granularity none").error,
                ::testing::HasSubstr("r.json has recomputation passes (R); use selective or full"));
    ASSERT_EQ(threads(2, "--metrics even.jsonl").exit_code, 0);
    EXPECT_EQ(curve("even.jsonl"), curve("r.jsonl"));
    const Outcome layout =
        threads(2, "--metrics layout.jsonl --pipeline-model-parallel-layout 'Vt*3|tV'");
    ASSERT_EQ(layout.exit_code, 0) << layout.error;
    EXPECT_EQ(curve("even.jsonl"), curve("layout.jsonl"));
}

TEST_F(TrainGpt, LeavesTheLastRankWithoutLayersWhereAskedTo) {
    using ::testing::ContainsRegex;
    using ::testing::HasSubstr;
    const Outcome one =
        threads(2, "--train-iters 1 --num-layers 1 --decoder-last-pipeline-num-layers 0");
    EXPECT_EQ(one.exit_code, 0) << one.error;
    const Outcome chunks = threads(2,
                                   "--train-iters 1 --num-layers 2 --schedule interleaved --chunks "
                                   "2 --decoder-last-pipeline-num-layers 0");
    EXPECT_EQ(chunks.exit_code, 0) << chunks.error;
    EXPECT_THAT(threads(2, "--decoder-first-pipeline-num-layers 2147483647").error,
                HasSubstr("--decoder-first-pipeline-num-layers 2147483647: must be at most 4"));
    // An output layer of 2.2 layers, and of 1.7 that recompute: the last rank has none, or one.
    const std::string flags =
        "--train-iters 1 --num-layers 2 --vocab-mode redistributed --vocab-size 900";
    EXPECT_THAT(threads(2, flags).output, ContainsRegex("\n +1 +1 +0 "));
    EXPECT_THAT(threads(2, flags + " --recompute-granularity full").output,
                ContainsRegex("\n +1 +1 +1 "));
}

TEST_F(TrainGpt, WritesAProfileFromWhichTheNextRunBuildsItsOrder) {
    ASSERT_EQ(mpi(2, "--metrics given.jsonl --profile p.json --report r.json").exit_code, 0);
    const json profile = json::parse(testing::read_file(folder_ / "p.json"));
    EXPECT_GT(profile.at("costs").at("stage_ns").at(1).at("B"), 0);
    EXPECT_EQ(profile.at("derived"), json({"I", "W"}));
    EXPECT_THAT(profile.at("command").get<std::string>(), ::testing::HasSubstr("--profile p.json"));
    const Outcome next = mpi(2, "--metrics built.jsonl --schedule-costs p.json");
    ASSERT_EQ(next.exit_code, 0) << next.error;
    EXPECT_EQ(curve("given.jsonl"), curve("built.jsonl"));
}

TEST_F(TrainGpt, ComparesItsPredictionWithTheMeasuredStep) {
    const Outcome run = threads(2, "--report r.json");
    EXPECT_THAT(run.output, ::testing::HasSubstr("prediction: step "));
    const json report = json::parse(testing::read_file(folder_ / "r.json"));
    const double predicted = report.at("predicted_step_seconds");
    const double measured = report.at("measured_step_seconds");
    EXPECT_GT(report.at("fixed_step_seconds"), 0);
    EXPECT_GT(predicted, 0);
    EXPECT_NEAR(report.at("step_error"), predicted / measured - 1, 1e-6);
    // A replay cannot take longer than what it replays, but for links that were slower when timed.
    EXPECT_LT(report.at("replay_error"), 0.5);
}

TEST_F(TrainGpt, SaysThatRanksShareCoresWhereTheyDo) {
    cpu_set_t cores;
    ASSERT_EQ(sched_getaffinity(0, sizeof cores, &cores), 0);
    int first = 0;
    while (!CPU_ISSET(first, &cores)) ++first;
    const std::string shared = "passes take longer while other ranks compute";
    const Outcome two = train("taskset -c " + std::to_string(first),
                              "--transport threads --ranks 2 --report two.json");
    EXPECT_THAT(two.output, ::testing::HasSubstr("\nwarning: 2 ranks x 1 thread have 1 core of "));
    EXPECT_THAT(two.output, ::testing::HasSubstr("\n2 ranks share 1 core: " + shared));
    EXPECT_EQ(json::parse(testing::read_file(folder_ / "two.json")).at("shared_cores"), 1);
    const Outcome one = threads(1, "--report one.json");
    EXPECT_THAT(one.output, ::testing::Not(::testing::HasSubstr(shared)));
    EXPECT_EQ(json::parse(testing::read_file(folder_ / "one.json")).at("shared_cores"), 0);
}

TEST_F(TrainGpt, HasTheSameCurveWithOneRankAndWithSeveralWithoutSharding) {
    ASSERT_EQ(threads(1, "--metrics p1.jsonl --vocab-mode none").exit_code, 0);
    for (const std::string schedule : {"gpipe", "1f1b"}) {
        ASSERT_EQ(
            threads(4, "--metrics p4.jsonl --vocab-mode none --schedule " + schedule).exit_code, 0);
        EXPECT_EQ(curve("p1.jsonl"), curve("p4.jsonl")) << schedule;
    }
}

TEST_F(TrainGpt, LearnsFromText) {
    ASSERT_EQ(threads(2, "--metrics m.jsonl --lr-warmup-iters 1").exit_code, 0);
    const std::vector<std::string> steps = curve("m.jsonl");
    EXPECT_NEAR(std::stod(steps.front()), std::log(257.0), 0.1);
    EXPECT_LT(std::stod(steps.back()), std::stod(steps.front()) - 0.5);
}

TEST_F(TrainGpt, WritesOneObjectPerStepOneTraceAndOneReport) {
    ASSERT_EQ(threads(2, "--metrics m.jsonl --report r.json --trace-dir traces").exit_code, 0);
    std::istringstream lines(testing::read_file(folder_ / "m.jsonl"));
    int step = 0;
    for (std::string line; std::getline(lines, line);) {
        const json one = json::parse(line);
        EXPECT_EQ(one.at("step"), ++step);
        for (const char* key : {"loss", "grad_norm", "lr", "tokens_per_second", "step_seconds"}) {
            EXPECT_TRUE(one.at(key).is_number()) << key;
        }
    }
    EXPECT_EQ(step, 6);
    const json report = json::parse(testing::read_file(folder_ / "r.json"));
    EXPECT_EQ(report.at("ranks").size(), 2U);
    for (const char* name : {"1f1b-one_barrier-p2.json", "1f1b-one_barrier-p2.simulated.json"}) {
        const json trace = json::parse(testing::read_file(folder_ / "traces/" + name));
        EXPECT_GT(trace.at("traceEvents").size(), 100U) << name;
    }
}

TEST_F(TrainGpt, PredictsTheProcessPeakWithinFivePercent) {
    // Large enough that the 16 MiB of constants do not decide: about 200 MiB per rank.
    const Outcome large = testing::run_shell(
        "cd '" + (folder_ / "") +
        "' && mpirun --oversubscribe -np 2 '" TRAIN_GPT_PROGRAM
        "' --data-path set --vocab-size 20000 --num-layers 4 --hidden-size 384 "
        "--num-attention-heads 8 --seq-length 128 --micro-batch-size 2 --global-batch-size 12 "
        "--train-iters 3 --report r.json");
    ASSERT_EQ(large.exit_code, 0) << large.error;
    const json report = json::parse(testing::read_file(folder_ / "r.json"));
    for (const json& rank : report.at("ranks")) {
        const double predicted = rank.at("predicted_peak_bytes");
        const double measured = rank.at("measured_peak_bytes");
        EXPECT_NEAR(measured / predicted, 1.0, 0.05);
        EXPECT_GE(rank.at("arena_bytes").get<int64_t>(), rank.at("live_peak_bytes").get<int64_t>());
    }
}

// 2 tensor ranks in each of 2 stages, and of 2 replicas of one stage.
TEST_F(TrainGpt, IsRefusedWhereItsControlGroupHasTooLittleMemory) {
    // Made by this test, where it may: the group has 120 MiB, the model needs several times that.
    const Outcome run = testing::run_shell(
        "cd '" + (folder_ / "") +
        "' && for group in /sys/fs/cgroup/memory /sys/fs/cgroup; do "
        "group=$group/vocabpipe-test-$$; mkdir $group 2>/dev/null || continue; "
        "for file in memory.limit_in_bytes memory.max; do "
        "  if [ -w $group/$file ] && echo 125829120 >$group/$file; then limited=$group; fi; done; "
        "[ -n \"$limited\" ] && break; rmdir $group; done; [ -n \"$limited\" ] || exit 99; "
        "sh -c \"echo \\$\\$ >$limited/cgroup.procs && exec '" TRAIN_GPT_PROGRAM
        "' --transport threads --ranks 1 --threads-per-rank 1 --data-path set --vocab-size 30000 "
        "--hidden-size 512 --num-attention-heads 8 --num-layers 4 --seq-length 16 --train-iters "
        "1\"; code=$?; rmdir $limited; exit $code");
    if (run.exit_code == 99) GTEST_SKIP() << "no control group can be made here";
    EXPECT_EQ(run.exit_code, 4) << run.output << run.error;
    EXPECT_THAT(run.error, ::testing::HasSubstr("train_gpt: error: "));
    EXPECT_THAT(run.output, ::testing::Not(::testing::HasSubstr("iteration 1/")));
}

TEST_F(TrainGpt, SharesStagesAmongTensorRanksWithTheSameBitsEverywhere) {
    for (const std::string mesh : {"", " --pipeline-model-parallel-size 1"}) {
        const std::string flags = " --tensor-model-parallel-size 2" + mesh;
        ASSERT_EQ(threads(4, "--metrics threads.jsonl" + flags).exit_code, 0);
        const Outcome launched = mpi(4, "--tile-pieces 2 --metrics mpi.jsonl" + flags);
        ASSERT_EQ(launched.exit_code, 0) << launched.error;
        EXPECT_EQ(curve("threads.jsonl").size(), 6U);
        EXPECT_EQ(curve("threads.jsonl"), curve("mpi.jsonl")) << mesh;
        ASSERT_EQ(threads(1, "--metrics alone.jsonl").exit_code, 0);
        for (size_t step = 0; step < 6; ++step) {
            EXPECT_NEAR(std::stod(curve("threads.jsonl")[step]),
                        std::stod(curve("alone.jsonl")[step]), 2e-5)
                << step;
        }
    }
}

TEST_F(TrainGpt, RefusesTensorRanksThatDoNotDivideWhatTheyShare) {
    for (const auto& [arguments, text] :
         {std::pair("--ranks 3 --tensor-model-parallel-size 2",
                    "--tensor-model-parallel-size 2: must divide the number of ranks, 3"),
          std::pair("--ranks 4 --tensor-model-parallel-size 4",
                    "--tensor-model-parallel-size 4: --num-attention-heads is 2"),
          std::pair("--ranks 4 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4",
                    "--pipeline-model-parallel-size 4: with --tensor-model-parallel-size 2"),
          std::pair("--ranks 2 --tensor-model-parallel-size 2 --seq-length 15",
                    "--micro-batch-size times --seq-length is 15"),
          std::pair("--ranks 2 --tensor-model-parallel-size 2 --reduction native",
                    "use --reduction ordered")}) {
        const Outcome refused = train("", std::string("--transport threads ") + arguments);
        EXPECT_EQ(refused.exit_code, 2) << arguments;
        EXPECT_THAT(refused.error, ::testing::HasSubstr(text));
    }
}

// 4 experts on 2 ranks each, in each of 2 stages, and with 2 tensor ranks that share them; each
// expert on 2 ranks.
TEST_F(TrainGpt, SharesExpertsWithTheSameBitsEverywhere) {
    using Case = std::array<std::string, 3>;  // mesh, how experts are shared, and the log of it
    for (const auto& [mesh, shared, text] :
         {Case{"--pipeline-model-parallel-size 2", "--expert-model-parallel-size 2",
               "experts shared by 2"},
          Case{"--pipeline-model-parallel-size 1 --tensor-model-parallel-size 2",
               "--expert-model-parallel-size 2", "experts shared by 2"},
          Case{"--pipeline-model-parallel-size 1 --tensor-model-parallel-size 2",
               "--expert-model-parallel-size 2 --expert-tensor-parallel-size 2",
               "experts shared by 4 (each by 2)"}}) {
        const std::string flags =
            " --model-type mixtral --num-experts 4 --moe-aux-loss-coeff 0.01 --schedule zb-h1 " +
            mesh;
        ASSERT_EQ(threads(4, shared + " --metrics threads.jsonl" + flags).exit_code, 0);
        const Outcome launched = mpi(4, shared + " --metrics mpi.jsonl" + flags);
        ASSERT_EQ(launched.exit_code, 0) << launched.error;
        EXPECT_THAT(launched.output, ::testing::HasSubstr(text));
        EXPECT_EQ(curve("threads.jsonl").size(), 6U);
        EXPECT_EQ(curve("threads.jsonl"), curve("mpi.jsonl")) << mesh;
        const Outcome blocking =
            threads(4, shared + " --blocking-exchanges --metrics blocking.jsonl" + flags);
        ASSERT_EQ(blocking.exit_code, 0) << blocking.error;
        EXPECT_THAT(blocking.output,
                    ::testing::HasSubstr("no product runs beside what ranks of a team exchange"));
        EXPECT_EQ(curve("threads.jsonl"), curve("blocking.jsonl")) << mesh;
        ASSERT_EQ(threads(2,
                          "--metrics alone.jsonl --model-type mixtral --num-experts 4 "
                          "--moe-aux-loss-coeff 0.01 --pipeline-model-parallel-size 1")
                      .exit_code,
                  0);
        for (size_t step = 0; step < 6; ++step) {
            EXPECT_NEAR(std::stod(curve("threads.jsonl")[step]),
                        std::stod(curve("alone.jsonl")[step]), 2e-5)
                << step;
        }
    }
}

TEST_F(TrainGpt, RefusesExpertRanksThatDoNotDivideWhatTheyShare) {
    const std::string experts = " --model-type mixtral --num-experts 6 ";
    using Refusal = std::pair<std::string, const char*>;
    for (const auto& [arguments, text] :
         {Refusal("--ranks 2 --expert-model-parallel-size 2",
                  "--expert-model-parallel-size 2: must divide replicas x tensor ranks, which "
                  "are 1 x 1; use a divisor of 1, or a smaller --pipeline-model-parallel-size"),
          Refusal("--ranks 2 --pipeline-model-parallel-size 1 --expert-model-parallel-size 2",
                  "--expert-model-parallel-size 2: --model-type gpt2 has no experts; use 1"),
          Refusal("--ranks 4 --pipeline-model-parallel-size 1 --global-batch-size 8 "
                  "--expert-model-parallel-size 4" +
                      experts,
                  "--expert-model-parallel-size 4: --num-experts is 6"),
          Refusal("--ranks 6 --pipeline-model-parallel-size 1 --tensor-model-parallel-size 2 "
                  "--expert-model-parallel-size 3" +
                      experts,
                  "--expert-model-parallel-size 3: must be a divisor or a multiple of "
                  "--tensor-model-parallel-size 2; use 1"),
          Refusal("--ranks 2 --pipeline-model-parallel-size 1 --profile p.json "
                  "--expert-model-parallel-size 2" +
                      experts,
                  "--expert-model-parallel-size 2: --profile describes ranks without expert "
                  "ranks; remove --profile"),
          Refusal("--ranks 2 --blocking-exchanges" + experts,
                  "--blocking-exchanges: there are no tensor, context or expert ranks"),
          Refusal("--ranks 2 --reshard-after step" + experts,
                  "--reshard-after step: requires --zero-stage 2 or 3"),
          Refusal("--ranks 2 --zero-stage 2 --gather-ahead 0" + experts,
                  "--gather-ahead 0: requires --zero-stage 3, whose weights are gathered"),
          Refusal("--ranks 2 --moe-row-factor 0" + experts, "--moe-row-factor 0: must be "),
          Refusal("--ranks 2 --pipeline-model-parallel-size 1 --expert-tensor-parallel-size 4" +
                      experts,
                  "--expert-tensor-parallel-size 4: times --expert-model-parallel-size 1 these are "
                  "4 ranks, but there are only 2; use a smaller size, or start more ranks"),
          Refusal("--ranks 2 --pipeline-model-parallel-size 1 --profile p.json "
                  "--expert-tensor-parallel-size 2" +
                      experts,
                  "--expert-tensor-parallel-size 2: --profile describes ranks without expert "
                  "ranks; remove --profile"),
          Refusal("--ranks 2 --expert-model-parallel-size 0" + experts,
                  "--expert-model-parallel-size 0: must be at least 1")}) {
        const Outcome refused = train("", "--transport threads " + arguments);
        EXPECT_EQ(refused.exit_code, 2) << arguments;
        EXPECT_THAT(refused.error, ::testing::HasSubstr(text));
    }
}

// Only learned positions limit sequences.
TEST_F(TrainGpt, GoesOnWithLongerSequencesOfRotaryModels) {
    const auto run = [&](const std::string& arguments) {
        return testing::run_shell("cd '" + (folder_ / "") +
                                  "' && '" TRAIN_GPT_PROGRAM
                                  "' --transport threads --ranks 2 --data-path set "
                                  "--global-batch-size 6 " +
                                  arguments);
    };
    const std::string model =
        "--model-type llama --vocab-size 257 --num-layers 2 --hidden-size 32 "
        "--num-attention-heads 2 ";
    Outcome made = run(model + "--seq-length 16 --train-iters 1 --eod-token-id 256 --save short");
    ASSERT_EQ(made.exit_code, 0) << made.error;
    const auto saved = [&](const std::string& step) {
        return json::parse(testing::read_file(folder_ / (step + "/config.json")));
    };
    EXPECT_EQ(saved("short/step-00000001").at("max_position_embeddings"), 16);
    EXPECT_EQ(saved("short/step-00000001").at("eos_token_id"), 256);
    made = run(model + "--seq-length 32 --train-iters 2 --load short --finetune --save long");
    ASSERT_EQ(made.exit_code, 0) << made.error;
    EXPECT_EQ(saved("long/step-00000002").at("max_position_embeddings"), 16)
        << "what the model was made for, by the file";
    EXPECT_EQ(saved("long/step-00000002").at("eos_token_id"), 256);

    json yarn = saved("short/step-00000001");
    yarn["rope_scaling"] = {{"rope_type", "yarn"},
                            {"factor", 4.0},
                            {"original_max_position_embeddings", 16},
                            {"attn_factor", 0.878}};
    testing::write_file(folder_ / "yarn.json", yarn.dump());
    made = run("--model yarn.json --seq-length 64 --train-iters 1");
    EXPECT_EQ(made.exit_code, 0) << made.error;
    EXPECT_EQ(made.error,
              "vocabpipe: note: yarn.json: rope_scaling.attn_factor is not used with rope_type "
              "yarn, as in transformers\n");
}

// The flags of Megatron-LM's examples for a GPT on tensor, data and pipeline ranks, but for sizes,
// paths and fp16.
TEST_F(TrainGpt, StartsWithTheFlagsOfAScriptForMegatron) {
    json vocabulary;
    for (int id = 0; id < 257; ++id) vocabulary["token" + std::to_string(id)] = id;
    testing::write_file(folder_ / "vocab.json", vocabulary.dump());
    ASSERT_EQ(prepare_documents(2000), 0);
    const Outcome run = testing::run_shell(
        "cd '" + (folder_ / "") +
        "' && mpirun --oversubscribe -np 8 '" TRAIN_GPT_PROGRAM
        "' --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --sequence-parallel "
        "--use-distributed-optimizer --num-layers 4 --hidden-size 32 --num-attention-heads 4 "
        "--seq-length 16 --max-position-embeddings 16 --attention-backend auto "
        "--micro-batch-size 4 --global-batch-size 16 --train-iters 5 --lr-decay-iters 4 "
        "--lr 0.00015 --lr-decay-style cosine --min-lr 1.0e-5 --weight-decay 1e-2 "
        "--adam-beta1 0.9 --adam-beta2 0.95 --init-method-std 0.006 --clip-grad 1.0 "
        "--lr-warmup-fraction .01 --bf16 --data-path documents --vocab-file vocab.json "
        "--merge-file merges.txt --data-impl mmap --split 949,50,1 --distributed-backend nccl "
        "--log-interval 1 --save-interval 10000 --eval-interval 1000 --eval-iters 1 "
        "--save saved --load saved --tensorboard-dir board");
    EXPECT_EQ(run.exit_code, 0) << run.error;
    EXPECT_THAT(run.output, ::testing::HasSubstr("2 replicas x 2 tensor ranks x 2 pipeline ranks"));
    EXPECT_THAT(run.output, ::testing::HasSubstr("iteration 5/5"));
}

}  // namespace
}  // namespace vocabpipe
