// SPDX-License-Identifier: Apache-2.0
// A run that stops and goes on is the run that never stopped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <numeric>
#include <optional>

#include "src/train/checkpoint/checkpoint_folder.hpp"
#include "src/train/checkpoint/training_state.hpp"
#include "tests/support/full_run.hpp"
#include "tests/train/checkpoint/checkpoint_run.hpp"
#include "tests/train/data/expect_error.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/make_schedule.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Curve = std::vector<std::string>;

Curve from(const Curve& curve, size_t step) {
    return {curve.begin() + static_cast<std::ptrdiff_t>(step) - 1, curve.end()};
}

class Resume : public ::testing::Test {
public:
    using Change = std::function<void(TrainOptions&)>;

protected:
    /// Six steps that save after the third, into `saved`.
    Curve whole(int ranks, const Change& change) {
        std::filesystem::remove_all(runs_.path("saved"));
        TrainOptions options = runs_.options();
        options.save = runs_.path("saved");
        options.save_interval = 3;
        change(options);
        const Curve curve = runs_.run(ranks, options);
        std::filesystem::remove_all(step_folder(options.save, 6));
        return curve;
    }
    Curve resumed(int ranks, const Change& change) {
        TrainOptions options = runs_.options();
        options.load = runs_.path("saved");
        change(options);
        return runs_.run(ranks, options);
    }

    /// Two pipelines of two ranks resume exactly, and in fp32 have the losses of one: other
    /// microbatches have the same losses of their routers.
    void expect_alike_on_two_pipelines(const Curve& one, const Change& change, DType dtype) {
        const Change replicas = [&](TrainOptions& o) {
            change(o);
            o.pipeline_model_parallel_size = 2;
        };
        const Curve two = whole(4, replicas);
        EXPECT_EQ(resumed(4, replicas), from(two, 4));
        const std::vector<double> one_pipeline = CheckpointRun::losses(one);
        const std::vector<double> two_pipelines = CheckpointRun::losses(two);
        for (size_t i = 0; dtype == DType::fp32 && i < one_pipeline.size(); ++i) {
            EXPECT_NEAR(two_pipelines[i], one_pipeline[i], 3e-6) << i;
        }
    }

    CheckpointRun runs_;
};

TEST_F(Resume, IsBitExactWithNeverHavingStopped) {
    struct Case {
        const char* schedule;
        int ranks;
        VocabMode mode;
        DType dtype;
        bool tied;
    };
    for (const Case& c : {Case{"1f1b", 1, VocabMode::none, DType::fp32, true},
                          Case{"1f1b", 2, VocabMode::one_barrier, DType::bf16, true},
                          Case{"1f1b", 4, VocabMode::none, DType::bf16, true},
                          Case{"gpipe", 3, VocabMode::interlaced, DType::fp32, false},
                          Case{"zb-v", 2, VocabMode::two_barriers, DType::bf16, false},
                          Case{"v-half", 2, VocabMode::one_barrier, DType::fp32, true},
                          Case{"interleaved", 2, VocabMode::redistributed, DType::fp32, false}}) {
        SCOPED_TRACE(std::string(c.schedule) + " " + std::string(to_string(c.mode)));
        const Change change = [&](TrainOptions& o) {
            o.schedule = c.schedule;
            o.vocab_mode = c.mode;
            o.model.dtype = c.dtype;
            o.model.tied = c.tied;
        };
        const Curve expected = whole(c.ranks, change);
        ASSERT_EQ(expected.size(), 6U);
        EXPECT_EQ(resumed(c.ranks, change), from(expected, 4));
    }
}

TEST_F(Resume, IsBitExactWithExperts) {
    const auto with_experts = [](const char* schedule, DType dtype) {
        return [=](TrainOptions& o) {
            set_family(o.model, "mixtral");
            o.model.moe.experts = 4;
            o.model.moe.aux_loss = 0.02F;
            o.model.moe.z_loss = 1e-3F;
            o.model.tied = false;
            o.model.dtype = dtype;
            o.schedule = schedule;
            o.vocab_mode = VocabMode::one_barrier;
        };
    };
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        const Curve expected = whole(2, with_experts("zb-h1", dtype));
        EXPECT_EQ(resumed(2, with_experts("zb-h1", dtype)), from(expected, 4));
        EXPECT_EQ(resumed(2, with_experts("1f1b", dtype)), from(expected, 4));
        expect_alike_on_two_pipelines(expected, with_experts("1f1b", dtype), dtype);
    }
}

TEST_F(Resume, IsBitExactWithCorrectionBiases) {
    const auto dots = [](const char* schedule, DType dtype) {
        return [=](TrainOptions& o) {
            set_family(o.model, "dots1");
            o.model.num_layers = 4;
            o.model.moe = {.experts = 8,
                           .top_k = 2,
                           .ffn_hidden_size = 16,
                           .shared_expert = true,
                           .shared_gate = false,
                           .score = kernels::RouterScore::sigmoid,
                           .groups = 4,
                           .top_groups = 2,
                           .correction_bias = true,
                           .bias_rate = 0.05F,
                           .sparse = {false, true, true, true}};
            o.model.tied = false;
            o.model.dtype = dtype;
            o.schedule = schedule;
            o.vocab_mode = VocabMode::one_barrier;
        };
    };
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        const Curve expected = whole(2, dots("zb-h1", dtype));
        EXPECT_EQ(resumed(2, dots("zb-h1", dtype)), from(expected, 4));
        const Change frozen = [&](TrainOptions& o) {
            dots("zb-h1", dtype)(o);
            o.model.moe.bias_rate = 0;
        };
        EXPECT_NE(whole(2, frozen), expected) << "the biases decide";
        expect_alike_on_two_pipelines(expected, dots("1f1b", dtype), dtype);
    }
}

TEST_F(Resume, IsBitExactWithSeveralPredictedTokens) {
    const auto predicting = [](const char* schedule, VocabMode mode, DType dtype) {
        return [=](TrainOptions& o) {
            set_family(o.model, "llama");
            o.model.mtp_num_layers = 2;
            o.model.dtype = dtype;
            o.schedule = schedule;
            o.vocab_mode = mode;
        };
    };
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        const Change sharded = predicting("zb-h1", VocabMode::one_barrier, dtype);
        const Curve expected = whole(2, sharded);
        EXPECT_EQ(resumed(2, sharded), from(expected, 4));
        EXPECT_EQ(resumed(2, predicting("dualpipe-v", VocabMode::two_barriers, dtype)),
                  from(expected, 4));
        expect_alike_on_two_pipelines(expected, sharded, dtype);
        const Change none = predicting("1f1b", VocabMode::none, dtype);
        const Curve unsharded = whole(3, none);
        EXPECT_EQ(resumed(1, none), from(unsharded, 4));
        EXPECT_EQ(resumed(4, none), from(unsharded, 4));
    }
}

TEST_F(Resume, IsBitExactAtAnotherNumberOfRanksWithoutSharding) {
    const Change none = [](TrainOptions& o) { o.vocab_mode = VocabMode::none; };
    const Curve expected = whole(2, none);
    for (const int ranks : {1, 3, 4}) EXPECT_EQ(resumed(ranks, none), from(expected, 4)) << ranks;
}

/// A pipeline of `ranks`, as often as there are ranks for it.
Resume::Change pipelines_of(int ranks, DType dtype) {
    return [=](TrainOptions& o) {
        o.pipeline_model_parallel_size = ranks;
        o.vocab_mode = VocabMode::none;
        o.model.dtype = dtype;
    };
}

TEST_F(Resume, IsBitExactWithReplicasOfAnyPipeline) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        const Curve expected = whole(4, pipelines_of(2, dtype));
        EXPECT_EQ(resumed(4, pipelines_of(2, dtype)), from(expected, 4));
        EXPECT_EQ(resumed(2, pipelines_of(1, dtype)), from(expected, 4));
        EXPECT_EQ(resumed(6, pipelines_of(3, dtype)), from(expected, 4));
    }
}

TEST_F(Resume, FollowsTheCurveAtAnyNumberOfReplicas) {
    const Curve expected = whole(4, pipelines_of(2, DType::fp32));
    const std::vector<double> want = CheckpointRun::losses(from(expected, 4));
    for (const int replicas : {1, 3}) {
        const std::vector<double> found =
            CheckpointRun::losses(resumed(replicas, pipelines_of(1, DType::fp32)));
        ASSERT_EQ(found.size(), want.size());
        for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(found[i], want[i], 3e-6) << i;
    }
}

TEST_F(Resume, IsBitExactWithAnotherScheduleAndOtherBarriersOfTheSameShards) {
    const Curve expected = whole(2, [](TrainOptions&) {});
    EXPECT_EQ(resumed(2, [](TrainOptions& o) { o.schedule = "zb-v"; }), from(expected, 4));
    EXPECT_EQ(resumed(2, [](TrainOptions& o) { o.vocab_mode = VocabMode::two_barriers; }),
              from(expected, 4));
}

TEST_F(Resume, FollowsTheCurveAtAnyRanksModeTypeAndLayout) {
    const Curve expected = whole(4, [](TrainOptions&) {});
    const std::vector<double> want = CheckpointRun::losses(from(expected, 4));
    const auto follows = [&](int ranks, double bound, const Change& change) {
        const std::vector<double> found = CheckpointRun::losses(resumed(ranks, change));
        ASSERT_EQ(found.size(), want.size());
        // tests/train/curve_test.cpp derives 3e-6 for thirty steps in fp32 and 3e-2 in bf16.
        for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(found[i], want[i], bound) << i;
    };
    for (const int ranks : {1, 2, 3}) follows(ranks, 3e-6, [](TrainOptions&) {});
    follows(2, 3e-6, [](TrainOptions& o) { o.vocab_mode = VocabMode::none; });
    follows(2, 3e-6, [](TrainOptions& o) { o.layout = "Vt|tttV"; });
    follows(3, 3e-2, [](TrainOptions& o) { o.model.dtype = DType::bf16; });
}

/// A way of running the model of the matrix.
struct Cell {
    std::string schedule;
    VocabMode mode = VocabMode::none;
    int ranks = 1;
    [[nodiscard]] std::string text() const {
        return schedule + " " + std::string(to_string(mode)) + " p " + std::to_string(ranks);
    }
    void apply(TrainOptions& o) const {
        o.model.num_layers = 8;
        o.global_batch_size = 12;
        o.schedule = schedule;
        o.vocab_mode = mode;
    }
};

/// Every family in every mode, with a number of ranks that makes every pair of two of the three
/// appear; with `all`, with each number. Neighbours differ in everything.
std::vector<Cell> cells(bool all) {
    constexpr std::array kModes{VocabMode::none, VocabMode::redistributed, VocabMode::interlaced,
                                VocabMode::one_barrier, VocabMode::two_barriers};
    const std::span<const Generator> families = generators();
    std::vector<Cell> result;
    for (size_t more = 0; more < (all ? 4U : 1U); ++more) {
        for (size_t f = 0; f < families.size(); ++f) {
            for (size_t m = 0; m < kModes.size(); ++m) {
                result.push_back({std::string(families[f].name), kModes[m],
                                  static_cast<int>(1 + (f + m + more) % 4)});
            }
        }
    }
    size_t step = result.size() / 3;  // coprime with their number: meets all of them
    while (std::gcd(step, result.size()) != 1) ++step;
    std::vector<Cell> mixed;
    for (size_t i = 0; i < result.size(); ++i) mixed.push_back(result[i * step % result.size()]);
    return mixed;
}

/// Each cell saves, goes on bit by bit as if nothing had happened, and the next goes on from it, at
/// other ranks, with another schedule in another mode.
TEST_F(Resume, FromEveryScheduleInEveryModeAtOneToFourRanksToAnother) {
    const std::vector<Cell> all = cells(full_run());
    std::optional<std::vector<double>> reference;
    for (size_t i = 0; i < all.size(); ++i) {
        const Cell& saver = all[i];
        const Cell& loader = all[(i + 1) % all.size()];
        SCOPED_TRACE("saved by " + saver.text() + ", loaded by " + loader.text());
        const bool async = i % 2 == 1;
        const Curve expected = whole(saver.ranks, [&](TrainOptions& o) {
            saver.apply(o);
            o.async_save = async;
        });
        ASSERT_EQ(expected.size(), 6U);
        const std::vector<double> want = CheckpointRun::losses(expected);
        if (!reference) reference = want;
        // tests/train/curve_test.cpp derives 3e-6 for thirty steps in fp32.
        for (size_t s = 0; s < want.size(); ++s) ASSERT_NEAR(want[s], (*reference)[s], 3e-6);
        ASSERT_EQ(resumed(saver.ranks, [&](TrainOptions& o) { saver.apply(o); }),
                  from(expected, 4));
        const std::vector<double> found =
            CheckpointRun::losses(resumed(loader.ranks, [&](TrainOptions& o) { loader.apply(o); }));
        ASSERT_EQ(found.size(), 3U);
        for (size_t s = 0; s < found.size(); ++s) ASSERT_NEAR(found[s], want[s + 3], 3e-6);
    }
}

TEST_F(Resume, WorksWhereRanksHaveNoRowOfTheVocabulary) {
    std::vector<uint16_t> tokens(4000);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>(i * i % 3);
    write_file(runs_.path("three.bin"), std::string(reinterpret_cast<const char*>(tokens.data()),
                                                    tokens.size() * sizeof(uint16_t)));
    for (const bool async : {false, true}) {
        const Change three = [&](TrainOptions& o) {
            o.data.path = {runs_.path("three.bin")};
            o.model.vocab_size = 3;
            o.async_save = async;
        };
        const Curve expected = whole(4, three);
        const Change without = [&](TrainOptions& o) {
            three(o);
            o.async_save = false;
        };
        EXPECT_EQ(resumed(4, without), from(expected, 4));
    }
}

TEST_F(Resume, GoesOnInABlendWithMaskedEndsOfDocuments) {
    std::vector<uint16_t> tokens(700);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>(i * i % 59);
    write_file(runs_.path("small.bin"), std::string(reinterpret_cast<const char*>(tokens.data()),
                                                    tokens.size() * sizeof(uint16_t)));
    const Change blend = [&](TrainOptions& o) {
        o.data.path = {"2", runs_.path("tokens.bin"), "1", runs_.path("small.bin")};
        o.data.split = "95,5";
        o.data.eod_token_id = 4;
        o.data.eod_mask_loss = true;
    };
    const Curve expected = whole(2, blend);
    EXPECT_EQ(resumed(2, blend), from(expected, 4));
    EXPECT_NE(expected, whole(2, [](TrainOptions&) {}));
}

TEST_F(Resume, ContinuesFromBf16WithItsMasterWeightsInFp32) {
    const Change bf16 = [](TrainOptions& o) { o.model.dtype = DType::bf16; };
    const std::vector<double> want = CheckpointRun::losses(from(whole(2, bf16), 4));
    const std::vector<double> found = CheckpointRun::losses(resumed(2, [](TrainOptions&) {}));
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(found[i], want[i], 3e-2) << i;
}

TEST_F(Resume, GoesOnWithTheNextSampleWhenTheBatchChanges) {
    // 3 steps of 6 samples, then 2 of 9: the same samples as 6 of 6 in the end.
    (void)whole(2, [](TrainOptions&) {});
    TrainOptions options = runs_.options();
    options.load = runs_.path("saved");
    options.save = runs_.path("next");
    options.global_batch_size = 9;
    options.train_iters = 5;
    EXPECT_EQ(runs_.run(2, options).size(), 2U);
    EXPECT_THAT(read_file(step_folder(options.save, 5) + "/training.json"),
                HasSubstr("\"consumed_samples\": 36"));
}

TEST_F(Resume, KeepsAsManyStepsAsItMayAndAddsToTheFolderItLoadedFrom) {
    TrainOptions options = runs_.options();
    options.save = options.load = runs_.path("saved");
    options.save_interval = 1;
    options.save_total_limit = 2;
    options.load.clear();
    options.train_iters = 4;
    (void)runs_.run(2, options);
    const auto steps = [&] {
        std::vector<int64_t> found;
        for (const SavedStep& s : complete_steps(options.save)) found.push_back(s.step);
        return found;
    };
    EXPECT_EQ(steps(), (std::vector<int64_t>{3, 4}));
    options.load = options.save;
    options.train_iters = 6;
    (void)runs_.run(2, options);
    EXPECT_EQ(steps(), (std::vector<int64_t>{5, 6}));
}

TEST_F(Resume, WithFinetuneTakesTheWeightsOnlyAndBeginsAtStepOne) {
    (void)whole(2, [](TrainOptions&) {});
    const Curve tuned = resumed(2, [](TrainOptions& o) {
        o.finetune = true;
        o.seed = 99;
    });
    ASSERT_EQ(tuned.size(), 6U);
    EXPECT_LT(CheckpointRun::losses(tuned)[0], std::log(61.0)) << "weights that have learned";
}

TEST_F(Resume, RefusesWhatDoesNotMatchAndOverwritesNothing) {
    (void)whole(2, [](TrainOptions&) {});
    const std::string saved = runs_.path("saved");
    const std::string step = step_folder(saved, 3);
    // What a save would remove, and what it would not.
    std::filesystem::create_directories(saved + "/.step-00000002.partial");
    write_file(saved + "/.step-00000002.partial/model.safetensors", "half");
    write_file(saved + "/notes.txt", "mine");
    const std::string older = "{\"loss\":1,\"step\":1,\"step_seconds\":1}\n";
    write_file(runs_.path("metrics"), older);
    const auto before = contents(saved);
    const auto refused = [&](const Change& change) {
        std::string message;
        for (const bool async : {false, true}) {
            message = message_of<AgreedError>([&] {
                (void)resumed(2, [&](TrainOptions& o) {
                    o.metrics = runs_.path("metrics");
                    o.save = saved;
                    o.save_interval = 1;
                    o.save_total_limit = 1;
                    o.async_save = async;
                    change(o);
                });
            });
            EXPECT_EQ(contents(saved), before) << message;
            EXPECT_EQ(read_file(runs_.path("metrics")), older) << message;
        }
        return message;
    };
    EXPECT_EQ(refused([](TrainOptions& o) { o.model.hidden_size = 64; }),
              step + "/config.json: n_embd is 32, but this run has 64; set --hidden-size 32");
    EXPECT_THAT(refused([](TrainOptions& o) { o.model.vocab_size = 64; }),
                HasSubstr("vocab_size is 61, but this run has 64; set --vocab-size 61"));
    EXPECT_THAT(refused([](TrainOptions& o) { o.model.num_layers = 5; }), HasSubstr("n_layer"));
    EXPECT_THAT(refused([](TrainOptions& o) { o.model.tied = false; }),
                HasSubstr("tie_word_embeddings"));
    EXPECT_THAT(refused([](TrainOptions& o) { o.seed = 5; }),
                HasSubstr("--seed is 1234, but this run has 5"));
    EXPECT_THAT(refused([](TrainOptions& o) { o.model.seq_length = 8; }),
                HasSubstr("--seq-length is 16, but this run has 8"));
    EXPECT_THAT(refused([](TrainOptions& o) { o.train_iters = 3; }),
                HasSubstr("--train-iters 3: "));
    EXPECT_THAT(refused([](TrainOptions& o) { o.load += "/nowhere"; }),
                HasSubstr("does not exist"));
    EXPECT_THAT(refused([](TrainOptions& o) { o.load.clear(); }),
                HasSubstr("already holds step-00000003"));
    EXPECT_THAT(refused([](TrainOptions& o) { o.finetune = true; }),
                HasSubstr("already holds step-00000003"));
    EXPECT_THAT(refused([&](TrainOptions& o) { o.data.path = {runs_.path("none.bin")}; }),
                HasSubstr("none.bin"));
    EXPECT_THAT(refused([](TrainOptions& o) { o.schedule = "none-such"; }), HasSubstr("none-such"));
    EXPECT_THAT(refused([](TrainOptions& o) { o.layout = "Vt|ttV"; }), HasSubstr("layout"));
    EXPECT_THAT(refused([](TrainOptions& o) {
                    o.save.clear();
                    o.save_interval = o.save_total_limit = 0;
                    o.async_save = true;
                }),
                HasSubstr("--async-save: requires --save DIR"));
    // A step that is damaged, and one that is not whole.
    for (const auto& [name, text] : contents(step)) {
        const std::string path = step + "/" + name;
        std::string bad = text;
        bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 1);
        write_file(path, bad);
        const auto damaged = contents(saved);
        EXPECT_THAT(message_of<AgreedError>(
                        [&] { (void)resumed(2, [&](TrainOptions& o) { o.save = saved; }); }),
                    HasSubstr(name));
        EXPECT_EQ(contents(saved), damaged) << name;
        write_file(path, text);
    }
    // Damage comes first, where the run could not go on from the step anyway.
    const std::string config = read_file(step + "/config.json");
    std::string other = config;
    other.replace(other.find("0.02"), 4, "0.03");
    write_file(step + "/config.json", other);
    EXPECT_THAT(message_of<AgreedError>(
                    [&] { (void)resumed(2, [](TrainOptions& o) { o.train_iters = 3; }); }),
                HasSubstr("config.json: the checksum"));
    write_file(step + "/config.json", config);
    EXPECT_EQ(contents(saved), before);
}

TEST_F(Resume, ContinuesTheMetricsFileAndLosesNoEarlierStep) {
    const std::string metrics = runs_.path("curve");
    const Curve expected = whole(2, [&](TrainOptions& o) { o.metrics = metrics; });
    const std::string lines = read_file(metrics);
    const auto resume = [&] { return resumed(2, [&](TrainOptions& o) { o.metrics = metrics; }); };
    EXPECT_EQ(resume(), expected) << "steps 4 to 6 ran twice";
    write_file(metrics, lines.substr(0, lines.size() - 7));
    EXPECT_EQ(resume(), expected) << "a line that was cut";
    const std::string note = "{\"note\": \"of a person\"}\n";
    write_file(metrics, note + lines);
    EXPECT_THROW((void)resume(), std::exception) << "this test reads no notes";
    EXPECT_EQ(read_file(metrics).substr(0, note.size()), note);
    std::filesystem::remove(metrics);
    EXPECT_EQ(resume(), from(expected, 4));
    EXPECT_EQ(resumed(2,
                      [&](TrainOptions& o) {
                          o.metrics = metrics;
                          o.finetune = true;
                      })
                  .size(),
              6U)
        << "another run begins anew";
}

TEST_F(Resume, SaysWhatIsNotAsItWasTheDataAmongIt) {
    (void)whole(2, [](TrainOptions&) {});
    const auto output = [&](const Change& change) {
        ::testing::internal::CaptureStdout();
        (void)resumed(2, change);
        return ::testing::internal::GetCapturedStdout();
    };
    EXPECT_THAT(output([](TrainOptions&) {}), Not(HasSubstr("changed since the run")));
    const auto normal = [](const std::string& path) {
        return std::filesystem::path(path).lexically_normal().string();
    };
    const std::string other = runs_.path("other.bin");
    write_file(other, read_file(runs_.path("tokens.bin")).substr(0, 4000));
    EXPECT_THAT(output([&](TrainOptions& o) {
                    o.data.path = {other};
                    o.async_save = false;
                    o.optimizer.clip_grad = 0.5F;
                }),
                HasSubstr("changed since the run that saved it:\n"
                          "  --clip-grad 0.5 (was 1)\n"
                          "  --data-path " +
                          normal(other) + " (was " + normal(runs_.path("tokens.bin")) +
                          ")\n  samples-per-epoch 124 (was 249)\n"));
    // As former versions wrote numbers, and no number of tensor ranks.
    const std::string file = step_folder(runs_.path("saved"), 3) + "/training.json";
    TrainingState state = parse_training_state(read_file(file), file);
    for (std::string& flag : state.flags) {
        if (flag == "--adam-beta1 0.9") flag = "--adam-beta1 0.89999997615814209";
        if (flag == "--lr-warmup-fraction not given") flag = "--lr-warmup-fraction 0";
    }
    EXPECT_EQ(std::erase(state.flags, "tensor-ranks 1"), 1U);
    EXPECT_THAT(state.flags, ::testing::IsSupersetOf(
                                 {"--adam-beta1 0.89999997615814209", "--lr-warmup-fraction 0"}));
    write_file(file, print_training_state(state));
    EXPECT_THAT(output([](TrainOptions&) {}), Not(HasSubstr("changed since the run")));
    EXPECT_THAT(output([](TrainOptions& o) { o.tensor_model_parallel_size = 2; }),
                HasSubstr("  ranks 1 (was 2)\n  tensor-ranks 2 (was 1)\n"));
    // The same file by another name of its folder.
    EXPECT_THAT(output([&](TrainOptions& o) { o.data.path = {runs_.path("./tokens.bin")}; }),
                Not(HasSubstr("changed since the run")));
}

// Earlier versions had no such flag.
TEST_F(Resume, SaysThatRanksShareExpertsWhichWereWhole) {
    const auto mixture = [](int expert_tensor) {
        return [=](TrainOptions& o) {
            set_family(o.model, "mixtral");
            o.model.moe.experts = 4;
            o.model.tied = false;
            o.pipeline_model_parallel_size = 1;
            o.expert_tensor_parallel_size = expert_tensor;
        };
    };
    (void)whole(2, mixture(1));
    const std::string file = step_folder(runs_.path("saved"), 3) + "/training.json";
    TrainingState state = parse_training_state(read_file(file), file);
    EXPECT_EQ(std::erase(state.flags, "--expert-tensor-parallel-size 1"), 1U);
    write_file(file, print_training_state(state));
    ::testing::internal::CaptureStdout();
    (void)resumed(2, mixture(2));
    EXPECT_THAT(::testing::internal::GetCapturedStdout(),
                HasSubstr("  --expert-tensor-parallel-size 2 (was 1)\n"));
}

TEST_F(Resume, FindsEveryDamagedByteByItsChecksum) {
    (void)whole(2, [](TrainOptions& o) { o.model.dtype = DType::bf16; });
    const std::string step = step_folder(runs_.path("saved"), 3);
    for (const std::string name :
         {"model.safetensors", "optimizer.safetensors", "config.json", "training.json"}) {
        const std::string path = step + "/" + name;
        const std::string good = read_file(path);
        for (const size_t at : {good.size() / 3, good.size() / 2, good.size() - 3}) {
            std::string bad = good;
            bad[at] = static_cast<char>(bad[at] ^ 4);
            write_file(path, bad);
            const std::string message = message_of<AgreedError>(
                [&] { (void)resumed(2, [](TrainOptions& o) { o.model.dtype = DType::bf16; }); });
            EXPECT_THAT(message, HasSubstr(path)) << at;
        }
        write_file(path, good.substr(0, good.size() - 2));
        EXPECT_THAT(message_of<AgreedError>([&] { (void)resumed(2, [](TrainOptions&) {}); }),
                    HasSubstr(path));
        write_file(path, good);
    }
    const std::string model = read_file(step + "/model.safetensors");
    std::string bad = model;
    bad.back() = static_cast<char>(bad.back() ^ 1);
    write_file(step + "/model.safetensors", bad);
    EXPECT_THAT(
        message_of<AgreedError>([&] { (void)resumed(2, [](TrainOptions&) {}); }),
        HasSubstr("model.safetensors: tensor transformer.wte.weight: the checksum (CRC-32C)"));
    EXPECT_THAT(message_of<AgreedError>(
                    [&] { (void)resumed(2, [](TrainOptions& o) { o.finetune = true; }); }),
                HasSubstr("tensor transformer.wte.weight: the checksum (CRC-32C)"));
}

TEST(CheckpointFolder, TakesTheNewestCompleteStepAndNothingElse) {
    const TempFolder folder;
    const std::string root = folder / "run";
    const auto refused = [&] {
        return message_of<InputFileError>([&] { (void)find_checkpoint(root, false); });
    };
    EXPECT_THAT(refused(), HasSubstr("does not exist"));
    std::filesystem::create_directories(root);
    EXPECT_THAT(refused(), HasSubstr("holds neither a complete saved step (step-NNNNNNNN)"));
    std::filesystem::create_directories(partial_folder(root, 9));
    std::filesystem::create_directories(step_folder(root, 8));  // without training.json
    EXPECT_THAT(refused(), HasSubstr("holds no complete saved step"));
    for (const int64_t step : {2, 100}) {
        std::filesystem::create_directories(step_folder(root, step));
        write_file(step_folder(root, step) + "/training.json", "{}");
    }
    std::filesystem::create_directories(root + "/step-99999");  // none of ours: too few digits
    write_file(root + "/step-99999/training.json", "{}");
    EXPECT_EQ(find_checkpoint(root, false).folder, root + "/step-00000100");
    EXPECT_TRUE(find_checkpoint(root, false).training);
    EXPECT_FALSE(find_checkpoint(root, true).training);
    EXPECT_EQ(find_checkpoint(root + "/step-00000002", false).folder, root + "/step-00000002");
    write_file(folder / "file", "");
    EXPECT_THAT(message_of<InputFileError>([&] { (void)find_checkpoint(folder / "file", false); }),
                HasSubstr("is a file"));
}

TEST(CheckpointFolder, RemovesWhatCrashedSavesLeftAndNothingElse) {
    const TempFolder folder;
    const std::string root = folder / "run";
    for (const char* name :
         {".step-00000003.partial", ".step-00000001.removed", ".step-00000004.partial",
          ".step-7.partial", "step-00000002", "mine"}) {
        std::filesystem::create_directories(root + "/" + name);
        write_file(root + "/" + name + "/model.safetensors", "x");
    }
    write_file(root + "/.step-00000004.partial/notes.txt", "of a person");
    SaveFolder save(root, 4, "");
    save.begin(5);
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(root)) {
        names.insert(entry.path().filename());
    }
    EXPECT_EQ(names, (std::set<std::string>{".step-00000004.partial", ".step-00000005.partial",
                                            ".step-7.partial", "mine", "step-00000002"}));
    EXPECT_EQ(read_file(root + "/.step-00000004.partial/notes.txt"), "of a person");
    EXPECT_EQ(read_file(root + "/mine/model.safetensors"), "x");
}

TEST(CheckpointFolder, IsWrittenByOneRunAtATime) {
    const TempFolder folder;
    const SaveFolder save(folder / "run", 0, "");
    EXPECT_THAT(message_of<UsageError>([&] { const SaveFolder other(folder / "run", 0, ""); }),
                HasSubstr("another run is saving to it"));
}

TEST(CheckpointFolder, KeepsAStepThatHasSomebodysFiles) {
    const TempFolder folder;
    const std::string root = folder / "run";
    for (const int64_t step : {1, 2, 3}) {
        std::filesystem::create_directories(step_folder(root, step));
        write_file(step_folder(root, step) + "/training.json", "{}");
    }
    write_file(step_folder(root, 1) + "/notes.txt", "best so far");
    SaveFolder(root, 3, step_folder(root, 3)).keep_last(1);
    const std::vector<SavedStep> left = complete_steps(root);
    ASSERT_EQ(left.size(), 2U);
    EXPECT_EQ(left[0].step, 1);
    EXPECT_EQ(left[1].step, 3);
}

TEST(CheckpointFolder, KeepsStepsOfOtherRuns) {
    const TempFolder folder;
    const std::string root = folder / "run";
    for (const int64_t step : {1, 2, 3}) {
        std::filesystem::create_directories(step_folder(root, step));
        write_file(step_folder(root, step) + "/training.json", "{}");
    }
    SaveFolder(root, 3, folder / "elsewhere/step-00000003").keep_last(1);
    EXPECT_EQ(complete_steps(root).size(), 3U);
}

TEST(CheckpointFolder, IsRefusedAtOnceIfASaveWouldFindItsNameTaken) {
    const TempFolder folder;
    const std::string incomplete = folder / "incomplete";
    std::filesystem::create_directories(incomplete + "/step-00000002");
    EXPECT_THAT(message_of<UsageError>([&] { const SaveFolder save(incomplete, 1, ""); }),
                HasSubstr("already holds step-00000002"));
    const std::string link = folder / "link";
    std::filesystem::create_directories(link);
    std::filesystem::create_directory_symlink(incomplete, link + "/step-00000002");
    EXPECT_THAT(message_of<UsageError>([&] { const SaveFolder save(link, 1, ""); }),
                HasSubstr("already holds step-00000002"));
    const std::string partial = folder / "partial";
    std::filesystem::create_directories(partial + "/.step-00000002.partial");
    write_file(partial + "/.step-00000002.partial/notes.txt", "of a person");
    EXPECT_THAT(message_of<UsageError>([&] { const SaveFolder save(partial, 1, ""); }),
                HasSubstr("already holds .step-00000002.partial"));
    const SaveFolder later(partial, 2, "");
}

}  // namespace
}  // namespace vocabpipe::testing
