// SPDX-License-Identifier: Apache-2.0
// score, select score, data filter and train_gpt --data-subset as programs, on threads and under
// mpirun.
#include "src/select/files/npy/header.hpp"
#include "src/select/files/scores_file.hpp"
#include "src/select/files/tensor_input.hpp"
#include "tests/tool/run_program.hpp"
#include "tests/train/select/subset_of.hpp"
#include "vocabpipe/policy_loss.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr const char* kModel =
    " --vocab-size 257 --num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 16 "
    "--global-batch-size 4 --log-interval 1 ";

/// Some text, and a small model that has read it.
class ScoreCommand : public ::testing::Test {
protected:
    static void SetUpTestSuite() {
        folder_ = new TempFolder;
        std::string text;
        for (int i = 0; i < 40; ++i) text += "Line " + std::to_string(i * i) + " of a text.\n\n";
        write_file(*folder_ / "text.txt", text);
        const Outcome made =
            in_folder("'" VOCABPIPE_PROGRAM
                      "' data prepare --input text.txt --output set --document-separator "
                      "blank-lines && '" TRAIN_GPT_PROGRAM
                      "' --transport threads --ranks 2 --data-path set --train-iters 20 --lr 1e-2 "
                      "--save steps" +
                      std::string(kModel));
        ASSERT_EQ(made.exit_code, 0) << made.error;
    }
    static void TearDownTestSuite() { delete folder_; }

    static Outcome in_folder(const std::string& command) {
        return run_shell("cd '" + (*folder_ / "") + "' && " + command);
    }
    static Outcome score(const std::string& arguments, const std::string& launcher = "") {
        return in_folder(launcher + "'" VOCABPIPE_PROGRAM "' select score " + arguments);
    }
    static Outcome score_tokens(const std::string& arguments, const std::string& launcher = "") {
        return in_folder(launcher +
                         "'" VOCABPIPE_PROGRAM
                         "' score --load steps --data-path set --seq-length 16 " +
                         arguments);
    }
    static std::string mpirun(int ranks) {
        return "timeout 60 mpirun --allow-run-as-root --oversubscribe -np " +
               std::to_string(ranks) + " ";
    }
    static std::string path(const std::string& name) { return *folder_ / name; }
    static std::vector<int32_t> utilities(const std::string& name) {
        const ScoresReader reader(path(name));
        std::vector<int32_t> utility(static_cast<size_t>(reader.samples()));
        reader.read_utility(0, utility);
        return utility;
    }
    /// Those of every step in a metrics file.
    static std::vector<double> losses(const std::string& name) {
        std::vector<double> found;
        const std::string metrics = read_file(path(name)), key = "\"loss\":";
        for (size_t at = 0; (at = metrics.find(key, at)) != std::string::npos; ++at) {
            found.push_back(std::stod(metrics.substr(at + key.size())));
        }
        return found;
    }
    /// Every third sample of the scored ones.
    static void choose(const std::string& scores, const std::string& subset, int64_t begin) {
        const Corpus corpus = ScoresReader(path(scores)).info().corpus;
        std::vector<int64_t> chosen;
        for (int64_t i = begin; i < corpus.samples; i += 3) chosen.push_back(i);
        write_subset_file(path(subset), corpus, chosen);
    }

    static TempFolder* folder_;
};
TempFolder* ScoreCommand::folder_ = nullptr;

TEST_F(ScoreCommand, FindsTheSameOnThreadsAndUnderMpirun) {
    const std::string arguments = "--load steps --data-path set --seq-length 16 --output ";
    const Outcome alone = score(arguments + "one");
    ASSERT_EQ(alone.exit_code, 0) << alone.error;
    EXPECT_THAT(alone.output, AllOf(HasSubstr("one: 49 samples, hidden size 16, mean margin 0."),
                                    HasSubstr("mean loss ")));
    ASSERT_EQ(score(arguments + "threads --ranks 2 --micro-batch-size 3").exit_code, 0);
    const Outcome ranks = score(arguments + "mpi", mpirun(2));
    ASSERT_EQ(ranks.exit_code, 0) << ranks.error;
    // Two ranks, threads or processes, compute the same bits; one computes nearly the same.
    EXPECT_EQ(read_file(path("threads")), read_file(path("mpi")));
    const std::vector<int32_t> expected = utilities("one");
    const std::vector<int32_t> found = utilities("mpi");
    ASSERT_EQ(expected.size(), found.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 64) << i;
}

TEST_F(ScoreCommand, LeadsToARunOnChosenSamplesAndToAFilteredCopy) {
    ASSERT_EQ(score("--load steps --data-path set --seq-length 16 --utility loss --output losses")
                  .exit_code,
              0);
    choose("losses", "subset", 0);
    choose("losses", "other", 1);
    const std::string train = "'" TRAIN_GPT_PROGRAM "' --data-path set " + std::string(kModel) +
                              "--vocab-mode none --threads-per-rank 1 --train-iters 4 ";
    const auto curve = [&](const std::string& name) {
        std::string steps;
        const std::string metrics = read_file(path(name));
        for (size_t at = 0; (at = metrics.find("\"loss\":", at)) != std::string::npos; ++at) {
            steps += metrics.substr(at, metrics.find(',', at) - at) + "\n";
        }
        return steps;
    };
    const Outcome threads =
        in_folder(train + "--transport threads --ranks 1 --data-subset subset --metrics m1");
    ASSERT_EQ(threads.exit_code, 0) << threads.error;
    const Outcome ranks =
        in_folder(mpirun(2) + train + "--data-subset subset --metrics m2 --save chosen");
    ASSERT_EQ(ranks.exit_code, 0) << ranks.error;
    EXPECT_NE(curve("m1"), "");
    EXPECT_EQ(curve("m1"), curve("m2"));
    const Outcome changed =
        in_folder(mpirun(2) + train + "--train-iters 6 --load chosen --data-subset other");
    EXPECT_EQ(changed.exit_code, 3);
    EXPECT_THAT(changed.error, HasSubstr("the run trained on 17 of 49 samples, checksum"));
    const Outcome mixed = in_folder(
        "timeout 60 mpirun --allow-run-as-root --oversubscribe -np 2 '" VOCABPIPE_BY_RANK "' " +
        train + "--data-subset subset :: " + train + "--data-subset other");
    EXPECT_EQ(mixed.exit_code, 3);
    EXPECT_THAT(mixed.error, HasSubstr("--data-subset: 17 of 49 samples, checksum"));

    const Outcome filtered = in_folder("'" VOCABPIPE_PROGRAM
                                       "' data filter --data-path set --seq-length 16 --subset "
                                       "subset --output part --ids ids");
    EXPECT_EQ(filtered.exit_code, 0) << filtered.error;
    EXPECT_THAT(filtered.output,
                AllOf(HasSubstr("part: 17 chosen samples, 273 tokens"), HasSubstr("ids: ")));
    const Outcome inspected =
        in_folder("'" VOCABPIPE_PROGRAM "' data inspect part --vocab-size 257");
    EXPECT_EQ(inspected.exit_code, 0) << inspected.error;
}

/// Elements and shape of a .npy file.
std::pair<std::vector<float>, std::vector<int64_t>> read_npy(const std::string& path) {
    const std::string bytes = read_file(path);
    const NpyHeader header = parse_npy_header(std::as_bytes(std::span(bytes)), bytes.size(), path);
    EXPECT_EQ(header.type, NpyType::f4);
    std::vector<float> values(static_cast<size_t>(header.elements()));
    std::memcpy(values.data(), bytes.data() + header.data_begin, values.size() * sizeof(float));
    return {values, header.shape};
}

TEST_F(ScoreCommand, WritesRecordsOfEveryTokenForOtherPrograms) {
    const Outcome made = score_tokens("--records entropy,logprob --output r.npy");
    ASSERT_EQ(made.exit_code, 0) << made.error;
    EXPECT_THAT(made.output, AllOf(HasSubstr("r.npy: 49 samples, 784 labels, mean logprob -"),
                                   HasSubstr("mean entropy ")));
    const auto [values, shape] = read_npy(path("r.npy"));
    ASSERT_EQ(shape, (std::vector<int64_t>{2, 49, 16}));
    ASSERT_EQ(score("--load steps --data-path set --seq-length 16 --output rows").exit_code, 0);
    std::vector<float> losses(49);
    ScoresReader(path("rows")).read_loss(0, losses);
    for (size_t i = 0; i < losses.size(); ++i) {
        double sum = 0;
        for (size_t n = 0; n < 16; ++n) {
            sum += values[i * 16 + n];
            EXPECT_GT(values[(49 + i) * 16 + n], 0) << "entropy";
            EXPECT_LE(values[(49 + i) * 16 + n], 5.55F) << "log 257";
        }
        EXPECT_NEAR(-sum / 16, losses[i], 1e-5) << "sample " << i;
    }
    ASSERT_EQ(score_tokens("--records logprob,entropy --output again.npy").exit_code, 0);
    EXPECT_EQ(read_file(path("again.npy")), read_file(path("r.npy")));
}

TEST_F(ScoreCommand, WritesTheSameRecordsOnThreadsAndUnderMpirunAndInEitherFormat) {
    const std::string two = "--micro-batch-size 3 --vocab-mode two_barriers --output ";
    ASSERT_EQ(score_tokens("--ranks 2 " + two + "threads.npy").exit_code, 0);
    const Outcome ranks = score_tokens(two + "mpi.npy", mpirun(2));
    ASSERT_EQ(ranks.exit_code, 0) << ranks.error;
    EXPECT_EQ(read_file(path("threads.npy")), read_file(path("mpi.npy")));
    ASSERT_EQ(score_tokens("--ranks 2 " + two + "r.safetensors").exit_code, 0);
    const auto [values, shape] = read_npy(path("mpi.npy"));
    ASSERT_EQ(shape, (std::vector<int64_t>{49, 16}));
    const TensorInput tensors(path("r.safetensors"), {"vocabpipe records 1"});
    std::vector<float> same(values.size());
    tensors.read(tensors.at("logprob", StoredType::F32, 2), 0, std::span(same));
    EXPECT_EQ(same, values);
    // Replicas share the samples and compute the bits of one rank.
    ASSERT_EQ(
        score_tokens("--ranks 2 --pipeline-model-parallel-size 1 --output replicas.npy").exit_code,
        0);
    ASSERT_EQ(score_tokens("--output alone.npy").exit_code, 0);
    EXPECT_EQ(read_file(path("replicas.npy")), read_file(path("alone.npy")));
}

TEST_F(ScoreCommand, WritesTheLikeliestTokensAndTheRankOfTheLabel) {
    const std::string arguments =
        "--records logprob,label_rank --top-logprobs 64 --micro-batch-size 3 --output ";
    const Outcome made = score_tokens("--ranks 2 " + arguments + "top.safetensors");
    ASSERT_EQ(made.exit_code, 0) << made.error;
    EXPECT_THAT(made.output, AllOf(HasSubstr("mean logprob -"), HasSubstr("mean label_rank ")));
    ASSERT_EQ(score_tokens(arguments + "top2.safetensors", mpirun(2)).exit_code, 0);
    EXPECT_EQ(read_file(path("top.safetensors")), read_file(path("top2.safetensors")));
    const TensorInput tensors(path("top.safetensors"), {"vocabpipe records 1"});
    std::vector<float> logprob(49 * 16), rank(logprob.size()), best(logprob.size() * 64);
    std::vector<int32_t> ids(best.size());
    tensors.read(tensors.at("logprob", StoredType::F32, 2), 0, std::span(logprob));
    tensors.read(tensors.at("label_rank", StoredType::F32, 2), 0, std::span(rank));
    tensors.read(tensors.at("top_logprobs", StoredType::F32, 3), 0, std::span(best));
    tensors.read(tensors.at("top_ids", StoredType::I32, 3), 0, std::span(ids));
    int found = 0;
    for (size_t n = 0; n < rank.size(); ++n) {
        // In the list at the label's rank is the label, with its log-probability.
        const auto place = static_cast<size_t>(rank[n]);
        ASSERT_GE(place, 1U);
        ASSERT_LE(place, 257U);
        double sum = 0;
        for (size_t k = 0; k < 64; ++k) {
            sum += std::exp(double{best[n * 64 + k]});
            ASSERT_TRUE(ids[n * 64 + k] >= 0 && ids[n * 64 + k] < 257);
            ASSERT_LE(best[n * 64 + k], k > 0 ? best[n * 64 + k - 1] : 0);
        }
        EXPECT_LT(sum, 1 + 1e-5);
        if (place > 64) continue;
        ++found;
        EXPECT_EQ(best[n * 64 + place - 1], logprob[n]);
    }
    EXPECT_GT(found, 300);
}

TEST_F(ScoreCommand, WritesTheSameRecordsOfDocumentsInStepsOfSeveralLengths) {
    std::string text;
    for (int i = 0; i < 41; ++i) {
        text += std::string("The words of a text").substr(0, static_cast<size_t>(1 + i * i % 19)) +
                "\n\n";
    }
    write_file(path("words.txt"), text);
    ASSERT_EQ(in_folder("'" VOCABPIPE_PROGRAM
                        "' data prepare --input words.txt --output words --document-separator "
                        "blank-lines")
                  .exit_code,
              0);
    struct Records {
        std::vector<float> logprob, rank, best;
        std::vector<int32_t> ids;
    };
    const auto records = [](const std::string& arguments) {
        const Outcome made =
            in_folder("rm -f words.safetensors && '" VOCABPIPE_PROGRAM
                      "' score --load steps --data-path words --seq-length 16 --packing-strategy "
                      "padded --records logprob,label_rank --top-logprobs 3 --micro-batch-size 2 "
                      "--output words.safetensors " +
                      arguments);
        EXPECT_EQ(made.exit_code, 0) << made.error;
        const TensorInput tensors(path("words.safetensors"), {"vocabpipe records 1"});
        const StoredTensor& of_label = tensors.at("logprob", StoredType::F32, 2);
        const auto tokens = static_cast<size_t>(of_label.shape[0] * of_label.shape[1]);
        Records found{.logprob = std::vector<float>(tokens),
                      .rank = std::vector<float>(tokens),
                      .best = std::vector<float>(3 * tokens),
                      .ids = std::vector<int32_t>(3 * tokens)};
        tensors.read(of_label, 0, std::span(found.logprob));
        tensors.read(tensors.at("label_rank", StoredType::F32, 2), 0, std::span(found.rank));
        tensors.read(tensors.at("top_logprobs", StoredType::F32, 3), 0, std::span(found.best));
        tensors.read(tensors.at("top_ids", StoredType::I32, 3), 0, std::span(found.ids));
        return found;
    };
    const Records expected = records("");
    ASSERT_GT(expected.logprob.size(), 41U * 16);  // some documents are two samples
    for (const std::string buckets : {"16,8", "3,5,16", "auto"}) {
        for (const std::string ranks :
             {"", " --ranks 2", " --ranks 2 --pipeline-model-parallel-size 1"}) {
            SCOPED_TRACE(buckets + ranks);
            const Records found = records("--length-buckets " + buckets + ranks);
            ASSERT_EQ(found.logprob.size(), expected.logprob.size());
            EXPECT_EQ(found.rank, expected.rank);
            EXPECT_EQ(found.ids, expected.ids);
            for (size_t n = 0; n < found.logprob.size(); ++n) {
                ASSERT_NEAR(found.logprob[n], expected.logprob[n], 1e-5) << n;
            }
            for (size_t i = 0; i < found.best.size(); ++i) {
                ASSERT_NEAR(found.best[i], expected.best[i], 1e-5) << i;
            }
        }
    }
    const Outcome cut = score_tokens("--length-buckets 16,8 --output cut.npy");
    EXPECT_EQ(cut.exit_code, 2);
    EXPECT_THAT(unwrapped(cut.error), HasSubstr("--length-buckets 16,8: lengths are those of "
                                                "documents, but samples are cut"));
}

TEST_F(ScoreCommand, LeadsWithRewardsToARunOfGrpo) {
    ASSERT_EQ(score_tokens("--output old.npy").exit_code, 0);
    std::string rewards;
    for (int i = 0; i < 49; ++i) rewards += std::to_string(i % 7) + "\n";
    write_file(path("rewards"), rewards);
    const auto columns = [](const std::string& arguments) {
        return in_folder("'" VOCABPIPE_EXAMPLES
                         "/grpo_columns.py' --old old.npy --rewards rewards " +
                         arguments);
    };
    const Outcome made = columns("--group-size 7 --reference old.npy --output c.npy");
    ASSERT_EQ(made.exit_code, 0) << made.error;
    const auto [values, shape] = read_npy(path("c.npy"));
    ASSERT_EQ(shape, (std::vector<int64_t>{3, 49, 16}));
    std::vector<float> group(7);
    for (size_t i = 0; i < 7; ++i) group[i] = static_cast<float>(i);
    const std::vector<float> expected = group_advantages(group, 7);
    for (size_t i = 0; i < 49 * 16; ++i) {
        EXPECT_NEAR(values[i], expected[i / 16 % 7], 1e-5) << i;
    }
    EXPECT_NE(columns("--group-size 4 --output bad.npy").exit_code, 0);

    const std::string train = "'" TRAIN_GPT_PROGRAM "' --data-path set " + std::string(kModel) +
                              "--load steps --finetune --train-iters 2 --loss grpo --columns ";
    const std::string policy =
        " --grpo-clamp-eps-lower 0.2 --grpo-clamp-eps-upper 0.28 --grpo-kl-beta 0.04 "
        "--grpo-kl-estimator k3 --metrics ";
    const Outcome threads =
        in_folder(train + "c.npy --transport threads --ranks 2" + policy + "grpo-threads");
    ASSERT_EQ(threads.exit_code, 0) << threads.error;
    const Outcome ranks = in_folder(mpirun(2) + train + "c.npy" + policy + "grpo-mpi");
    ASSERT_EQ(ranks.exit_code, 0) << ranks.error;
    const auto first_loss = [](const std::string& name) {
        const std::string metrics = read_file(path(name));
        return metrics.substr(metrics.find("\"loss\":"), 20);
    };
    EXPECT_EQ(first_loss("grpo-threads"), first_loss("grpo-mpi"));

    ASSERT_EQ(columns("--group-size 7 --output two.npy").exit_code, 0);
    ASSERT_EQ(columns("--group-size 49 --output other.npy").exit_code, 0);
    const Outcome mixed = in_folder(
        "timeout 60 mpirun --allow-run-as-root --oversubscribe -np 2 '" VOCABPIPE_BY_RANK "' " +
        train + "two.npy :: " + train + "other.npy");
    EXPECT_EQ(mixed.exit_code, 3);
    EXPECT_THAT(mixed.error, HasSubstr("--columns: 2 columns of 49 samples, checksum"));
    const Outcome refused =
        in_folder(train + "two.npy --transport threads --ranks 2" + policy + "grpo-none");
    EXPECT_EQ(refused.exit_code, 3);
    EXPECT_THAT(refused.error, HasSubstr("--columns two.npy: is <f4 [2, 49, 16]; it must be <f4 "
                                         "[3, 49, 16] of advantages, old_log_probs, ref_log_prob"));
}

TEST_F(ScoreCommand, LeadsFromATeachersListsToADistilledModel) {
    ASSERT_EQ(score_tokens("--top-logprobs 16 --output teacher.safetensors").exit_code, 0);
    const auto train = [](const std::string& arguments, const std::string& launcher = "") {
        return in_folder(
            launcher + "'" TRAIN_GPT_PROGRAM "' --data-path set " + std::string(kModel) +
            "--loss distillation --columns teacher.safetensors --kd-top-k 16 " + arguments);
    };
    // Nothing is between the teacher and itself.
    const std::string itself = "--load steps --finetune --train-iters 2 --lr 0 --metrics ";
    const Outcome same = train(itself + "same.jsonl --transport threads --ranks 2");
    ASSERT_EQ(same.exit_code, 0) << same.error;
    ASSERT_EQ(losses("same.jsonl").size(), 2U);
    for (const double loss : losses("same.jsonl")) EXPECT_NEAR(loss, 0, 1e-5);
    // A model with random weights learns from the lists, on threads and processes alike.
    const std::string student = "--train-iters 20 --lr 1e-2 --metrics ";
    const Outcome threads = train(student + "threads.jsonl --transport threads --ranks 2");
    ASSERT_EQ(threads.exit_code, 0) << threads.error;
    const Outcome ranks = train(student + "processes.jsonl", mpirun(2));
    ASSERT_EQ(ranks.exit_code, 0) << ranks.error;
    ASSERT_EQ(losses("threads.jsonl").size(), 20U);
    EXPECT_EQ(losses("threads.jsonl"), losses("processes.jsonl"));
    EXPECT_LT(losses("threads.jsonl").back(), 0.5 * losses("threads.jsonl").front());
    const Outcome other =
        in_folder("'" TRAIN_GPT_PROGRAM "' --data-path set " + std::string(kModel) +
                  "--transport threads --ranks 2 --train-iters 1 --kd-ratio 0.5");
    EXPECT_EQ(other.exit_code, 2);
    EXPECT_THAT(unwrapped(other.error),
                HasSubstr("--kd-top-k, --kd-ratio: are terms of --loss distillation, but the loss "
                          "is the cross-entropy"));
}

TEST_F(ScoreCommand, LeadsFromPairsOfAnswersToAModelThatPrefersTheBetter) {
    std::string lines;
    for (int question = 0; question < 8; ++question) {
        for (const std::string answer : {"yes.", "no!"}) {
            lines += R"({"text": "Is )" + std::to_string(question) + "? " + answer +
                     R"(", "learn": [[6, )" + std::to_string(6 + answer.size()) + "]]}\n";
        }
    }
    write_file(path("both.jsonl"), lines);
    ASSERT_EQ(in_folder("'" VOCABPIPE_PROGRAM
                        "' data prepare --input both.jsonl --output pairs && '" VOCABPIPE_PROGRAM
                        "' score --load steps --data-path pairs --seq-length 16 --output ref.npy "
                        "--packing-strategy padded")
                  .exit_code,
              0);
    const std::string train =
        "'" TRAIN_GPT_PROGRAM
        "' --data-path pairs --packing-strategy padded --loss dpo --columns "
        "ref.npy --load steps --finetune --lr 1e-2 --train-iters 12 --metrics ";
    const Outcome threads =
        in_folder(train + "dpo.jsonl --transport threads --ranks 2" + std::string(kModel));
    ASSERT_EQ(threads.exit_code, 0) << threads.error;
    EXPECT_THAT(threads.output, HasSubstr(" | rewards/accuracies 1.000 | rewards/margins "));
    const Outcome ranks = in_folder(mpirun(2) + train + "dpo_mpi.jsonl" + std::string(kModel));
    ASSERT_EQ(ranks.exit_code, 0) << ranks.error;
    ASSERT_EQ(losses("dpo.jsonl").size(), 12U);
    EXPECT_EQ(losses("dpo.jsonl"), losses("dpo_mpi.jsonl"));
    EXPECT_NEAR(losses("dpo.jsonl").front(), std::log(2), 1e-4);
    EXPECT_LT(losses("dpo.jsonl").back(), 0.3);
    const Outcome odd = in_folder(train + "odd.jsonl --transport threads --ranks 2" +
                                  std::string(kModel) + "--global-batch-size 3");
    EXPECT_EQ(odd.exit_code, 2);
    EXPECT_THAT(unwrapped(odd.error), HasSubstr("use an even --global-batch-size"));
}

TEST_F(ScoreCommand, RefusesRecordsThatAreNone) {
    for (const auto& [arguments, message] :
         {std::pair{"--output r.csv", "--output r.csv: must end in .npy or .safetensors"},
          std::pair{"--records logprob,ranks --output bad.npy",
                    "--records ranks: must be one of loss, logprob, entropy, logsumexp, margin, "
                    "label_rank"},
          std::pair{"--top-logprobs 65 --output r.safetensors", "--top-logprobs 65"},
          std::pair{"--top-logprobs 2 --output r.npy", "name a .safetensors file"},
          std::pair{"--records top_logprobs --output r.safetensors",
                    "--records top_logprobs: is a list; use --top-logprobs K"},
          std::pair{"--temperature 0 --output bad.npy", "--temperature 0"}}) {
        const auto before = folder_->names();
        const Outcome refused = score_tokens(arguments);
        EXPECT_EQ(refused.exit_code, 2) << arguments << "\n" << refused.error;
        EXPECT_THAT(unwrapped(refused.error), HasSubstr(message));
        EXPECT_EQ(std::count(refused.error.begin(), refused.error.end(), '\n'), 1) << refused.error;
        EXPECT_EQ(folder_->names(), before) << arguments;
    }
}

TEST_F(ScoreCommand, RefusesBadInputInOneLineAndWritesNothing) {
    struct Case {
        std::string arguments;
        int exit_code;
        std::string message;
    };
    const std::string rest = " --load steps --seq-length 16 --output bad ";
    for (const Case& c : std::vector<Case>{
             {"--load steps --data-path set --seq-length 17 --output bad", 2,
              "--seq-length 17: the model has 16 positions"},
             {"--load steps --data-path set --seq-length 0 --output bad", 2, "--seq-length"},
             {"--load none --data-path set --seq-length 16 --output bad", 3, "none"},
             {"--data-path none" + rest, 3, "none"},
             {"--data-path wide.bin --data-format raw-u16" + rest, 3, "allows only 0 to 256"},
             {"--data-path set --utility best" + rest, 2, "--utility"},
             {"--data-path set --schedule none" + rest, 2, "--schedule"},
             {"--load steps --data-path set --seq-length 16 --output text.txt", 2,
              "already exists and is not a file of scores"},
             {"--load steps --data-path set --seq-length 16 --output set.bin", 2,
              "is also an input"},
             {"--load steps --data-path set --seq-length 16 --output none/bad", 1, "none/bad"},
             {"--data-path set --micro-batch-size 1000000" + rest, 4,
              "use a smaller --micro-batch-size"},
             {"--data-path set --ranks 3 --pipeline-model-parallel-size 2" + rest, 2,
              "must divide the number of ranks, 3"},
         }) {
        write_file(path("wide.bin"), std::string(200, '\x02'));  // tokens 514
        const auto before = folder_->names();
        const Outcome refused = score(c.arguments);
        EXPECT_EQ(refused.exit_code, c.exit_code) << c.arguments << "\n" << refused.error;
        EXPECT_THAT(unwrapped(refused.error), HasSubstr(c.message)) << c.arguments;
        EXPECT_THAT(refused.error, EndsWith("\n"));
        EXPECT_EQ(std::count(refused.error.begin(), refused.error.end(), '\n'), 1) << refused.error;
        EXPECT_EQ(folder_->names(), before) << c.arguments;
    }
}

}  // namespace
}  // namespace vocabpipe::testing
