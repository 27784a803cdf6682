// SPDX-License-Identifier: Apache-2.0
// Records of whole steps: against a model in double, over ranks, modes, schedules and replicas, and
// the memory that they are planned to take.
#include "vocabpipe/token_record.hpp"

#include "tests/model/model_cases.hpp"
#include "tests/model/model_run.hpp"
#include "tests/support/schedule_cases.hpp"
#include "tests/train/token_problem.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/trained_rank.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

constexpr int64_t kRecordVocabulary = 24;
constexpr int64_t kRecordLength = 6;
constexpr uint64_t kRecordSeed = 7;

const TokenRecords kWanted{TokenRecord::logprob, TokenRecord::entropy, TokenRecord::logsumexp,
                           TokenRecord::margin};
const TokenRecords kRankedAndListed =
    kWanted | TokenRecords{TokenRecord::label_rank} | TokenRecords::best(5);

struct RecordSetup {
    ModelConfig config;
    std::string schedule = "1f1b";
    VocabMode mode = VocabMode::one_barrier;
    int ranks = 1, replicas = 1, tensor = 1;
    bool training = false;  ///< a step with gradients
    float temperature = 1;
    std::vector<bool> allowed = {};
    TokenRecords wanted = kRankedAndListed;
};

using Records = std::map<TokenRecord, std::vector<float>>;

StepPlan plan_of(const RecordSetup& setup, int microbatches) {
    return plan_step(setup.config,
                     {.ranks = setup.ranks, .replicas = setup.replicas, .tensor = setup.tensor},
                     {.name = setup.schedule, .vocab_mode = setup.mode},
                     {.microbatches = microbatches / setup.replicas,
                      .micro_batch_size = 2,
                      .evaluation = !setup.training,
                      .optimizer = false,
                      .training = setup.training,
                      .records = {.columns = setup.wanted,
                                  .temperature = setup.temperature,
                                  .allowed_tokens = setup.allowed}});
}

/// Records of all microbatches in order, whatever the replicas; every rank of a replica must have
/// the same.
Records records_on_threads(const RecordSetup& setup, const Batch& batch) {
    const auto microbatches = static_cast<int>(batch.tokens.size());
    const StepPlan plan = plan_of(setup, microbatches);
    const Mesh mesh = plan.mesh();
    Records found;
    std::mutex mutex;
    World::threads(mesh.size(), {.timeout_seconds = 30}).run([&](Communicator& world) {
        const std::unique_ptr<Device> device = make_host_device();
        TrainedRank rank(world, *device, plan, {.seed = kRecordSeed, .poison_dead_buffers = true});
        const int replica = mesh.replica(world.rank());
        std::vector<Microbatch> mine;
        for (Microbatch& one : batch.microbatches()) {
            if (one.index % setup.replicas != replica) continue;
            one.index /= setup.replicas;
            mine.push_back(one);
        }
        rank.run(mine);
        for (const TokenRecord record : setup.wanted.list()) {
            const std::vector<float> values = rank.records(record);
            const std::lock_guard lock(mutex);
            const size_t tokens =
                batch.tokens[0].size() * static_cast<size_t>(setup.wanted.numbers_of(record));
            ASSERT_EQ(values.size(), mine.size() * tokens);
            std::vector<float>& all = found[record];
            all.resize(batch.tokens.size() * tokens, -1e30F);
            for (size_t j = 0; j < mine.size(); ++j) {
                const size_t to =
                    (j * static_cast<size_t>(setup.replicas) + static_cast<size_t>(replica)) *
                    tokens;
                for (size_t n = 0; n < tokens; ++n) {
                    if (all[to + n] != -1e30F) {
                        EXPECT_EQ(all[to + n], values[j * tokens + n]) << "on every rank";
                    }
                    all[to + n] = values[j * tokens + n];
                }
            }
        }
    });
    return found;
}

/// The ids of all allowed tokens, the likeliest first.
std::vector<size_t> by_likelihood(const std::vector<double>& z) {
    std::vector<size_t> ids;
    for (size_t id = 0; id < z.size(); ++id) {
        if (!std::isinf(z[id])) ids.push_back(id);
    }
    std::ranges::stable_sort(ids, [&](size_t a, size_t b) { return z[a] > z[b]; });
    return ids;
}

/// Log Z cannot be told from losses; the others can, at any temperature and for any allowed tokens.
Records expected_records(const RecordSetup& setup, const Batch& batch,
                         const std::vector<std::vector<double>>& log_p) {
    Records expected;
    const auto count = static_cast<size_t>(setup.wanted.best_count());
    size_t at = 0;
    for (const std::vector<int32_t>& labels : batch.labels) {
        std::vector<float>& lists = expected[TokenRecord::top_logprobs];
        const size_t lists_begin = lists.size();
        lists.resize(lists_begin + 2 * count * labels.size());
        for (size_t n = 0; n < labels.size(); ++n) {
            const int32_t label = labels[n];
            const std::vector<double>& all = log_p[at++];
            std::vector<double> z;
            for (size_t v = 0; v < all.size(); ++v) {
                const bool allowed = setup.allowed.empty() || setup.allowed[v];
                z.push_back(allowed ? all[v] / setup.temperature : -INFINITY);
            }
            double sum = 0, entropy = 0;
            for (const double one : z) sum += std::exp(one);
            const double log_sum = std::log(sum);
            for (const double one : z) {
                if (!std::isinf(one)) entropy -= std::exp(one - log_sum) * (one - log_sum);
            }
            const bool counts = label >= 0;
            const double own = counts ? z[static_cast<size_t>(label)] - log_sum : 0;
            const std::vector<size_t> ids = by_likelihood(z);
            const auto place = std::ranges::find(ids, static_cast<size_t>(label)) - ids.begin();
            expected[TokenRecord::label_rank].push_back(counts ? static_cast<float>(place + 1)
                                                               : 0.0F);
            for (size_t k = 0; k < count && counts; ++k) {
                float* const to = &lists[lists_begin + k * labels.size() + n];
                to[0] = static_cast<float>(z[ids[k]] - log_sum);
                to[count * labels.size()] = static_cast<float>(ids[k]);
            }
            std::ranges::sort(z, std::greater<>());
            const double margin = std::exp(z[0] - log_sum) - std::exp(z[1] - log_sum);
            expected[TokenRecord::logprob].push_back(static_cast<float>(own));
            expected[TokenRecord::entropy].push_back(static_cast<float>(counts ? entropy : 0));
            expected[TokenRecord::margin].push_back(static_cast<float>(counts ? margin : 0));
        }
    }
    return expected;
}

void expect_records(const Records& found, const Records& expected) {
    for (const auto& [record, values] : expected) {
        const std::vector<float>& mine = found.at(record);
        ASSERT_EQ(mine.size(), values.size());
        for (size_t i = 0; i < values.size(); ++i) {
            if (std::isinf(values[i])) {
                EXPECT_EQ(mine[i], values[i]) << to_string(record) << " " << i;
            } else {
                EXPECT_NEAR(mine[i], values[i], 2e-5) << to_string(record) << " " << i;
            }
        }
    }
}

class RecordsOfSteps : public ::testing::Test {
protected:
    const ModelConfig config_ = [] {
        ModelConfig config = small_family("llama", 4, kRecordLength, kRecordVocabulary, false);
        config.ffn_hidden_size = 32;
        return config;
    }();
    const Batch batch_ = random_batch(config_, 4, 2, 3, 0.2);
    const std::vector<std::vector<double>> log_p_ =
        log_probabilities(config_, batch_, initial_weights(config_, kRecordSeed));
};

TEST_F(RecordsOfSteps, AreThoseOfAModelInDoubleInEveryModeScheduleAndMesh) {
    const Records expected = expected_records({.config = config_}, batch_, log_p_);
    for (const VocabMode mode : kEveryVocabMode) {
        SCOPED_TRACE(to_string(mode));
        expect_records(records_on_threads({.config = config_, .mode = mode, .ranks = 2}, batch_),
                       expected);
    }
    for (const std::string schedule : {"gpipe", "interleaved", "zb-v"}) {
        SCOPED_TRACE(schedule);
        expect_records(
            records_on_threads({.config = config_, .schedule = schedule, .ranks = 2}, batch_),
            expected);
    }
    expect_records(records_on_threads({.config = config_, .ranks = 4}, batch_), expected);
    expect_records(records_on_threads({.config = config_, .ranks = 2, .replicas = 2}, batch_),
                   expected);
    expect_records(records_on_threads({.config = config_, .ranks = 2, .tensor = 2}, batch_),
                   expected);
}

TEST_F(RecordsOfSteps, AreMadeByTrainingToo) {
    const RecordSetup evaluation{.config = config_, .ranks = 2};
    RecordSetup training = evaluation;
    training.training = true;
    EXPECT_EQ(records_on_threads(training, batch_), records_on_threads(evaluation, batch_));
}

TEST_F(RecordsOfSteps, HaveTheSameBitsWithOneBarrierAndTwo) {
    RecordSetup setup{.config = config_, .ranks = 2, .training = true};
    const Records one = records_on_threads(setup, batch_);
    setup.mode = VocabMode::two_barriers;
    EXPECT_EQ(records_on_threads(setup, batch_), one);
    setup.schedule = "zb-h1";
    EXPECT_EQ(records_on_threads(setup, batch_), one);
}

TEST_F(RecordsOfSteps, FollowTheTemperatureAndTheAllowedTokens) {
    for (const float temperature : {0.5F, 3.0F}) {
        RecordSetup setup{.config = config_, .ranks = 2, .temperature = temperature};
        expect_records(records_on_threads(setup, batch_), expected_records(setup, batch_, log_p_));
        for (int64_t v = 0; v < kRecordVocabulary; ++v) setup.allowed.push_back(v % 3 != 1);
        expect_records(records_on_threads(setup, batch_), expected_records(setup, batch_, log_p_));
    }
}

TEST_F(RecordsOfSteps, OfBf16ModelsRankAndListTheSameInEveryModeAndByTraining) {
    RecordSetup setup{.config = config_, .ranks = 2};
    setup.config.dtype = DType::bf16;
    const Records found = records_on_threads(setup, batch_);
    const std::vector<float>& ranks = found.at(TokenRecord::label_rank);
    const std::vector<float>& lists = found.at(TokenRecord::top_logprobs);
    const size_t tokens = batch_.tokens[0].size();
    for (size_t i = 0; i < ranks.size(); ++i) {
        if (ranks[i] == 0 || ranks[i] > 5) continue;
        const size_t at = i / tokens * 10 * tokens + i % tokens;
        const auto place = static_cast<size_t>(ranks[i]) - 1;
        EXPECT_EQ(lists[at + (5 + place) * tokens],
                  static_cast<float>(batch_.labels[i / tokens][i % tokens]));
    }
    for (const VocabMode mode : kShardedModes) {
        for (const bool training : {false, true}) {
            setup.mode = mode;
            setup.training = training;
            EXPECT_EQ(records_on_threads(setup, batch_), found) << to_string(mode) << training;
        }
    }
}

TEST_F(RecordsOfSteps, OfMicrobatchesOfSeveralLengthsAreThoseOfEachAlone) {
    ModelConfig shorter = config_;
    shorter.seq_length = 4;
    const Batch part = random_batch(shorter, 2, 2, 8, 0.2);
    const Batch whole = random_batch(config_, 2, 2, 3, 0.2);
    const Tensors weights = initial_weights(config_, kRecordSeed);
    const RecordSetup setup{.config = config_, .ranks = 2};
    const Records of_part =
        expected_records(setup, part, log_probabilities(shorter, part, weights));
    const Records of_whole =
        expected_records(setup, whole, log_probabilities(config_, whole, weights));
    StepWork work{.microbatches = 4,
                  .micro_batch_size = 2,
                  .evaluation = true,
                  .optimizer = false,
                  .training = false,
                  .records = {.columns = setup.wanted}};
    work.shorter_lengths = {4};
    const StepPlan plan = plan_step(config_, {.ranks = 2}, {}, work);
    World::threads(2, {.timeout_seconds = 30}).run([&](Communicator& world) {
        const std::unique_ptr<Device> device = make_host_device();
        TrainedRank rank(world, *device, plan, {.seed = kRecordSeed, .poison_dead_buffers = true});
        std::vector<Microbatch> mixed;
        for (size_t j = 0; j < 4; ++j) {
            mixed.push_back((j % 2 == 0 ? part : whole).microbatches()[j / 2]);
            mixed.back().index = static_cast<int>(j);
        }
        rank.run(mixed);
        Records found, expected;
        for (const auto& [record, values] : of_part) {
            found[record] = rank.records(record);
            const std::vector<float>& others = of_whole.at(record);
            for (size_t j = 0; j < 4; ++j) {
                const std::vector<float>& from = j % 2 == 0 ? values : others;
                const auto size = static_cast<ptrdiff_t>(from.size() / 2);
                const auto first = from.begin() + static_cast<ptrdiff_t>(j / 2) * size;
                expected[record].insert(expected[record].end(), first, first + size);
            }
        }
        expect_records(found, expected);
    });
}

TEST_F(RecordsOfSteps, TakeTheMemoryThatIsPlanned) {
    for (const auto& [ranks, wanted] :
         {std::pair{1, kWanted}, {2, kWanted}, {1, kRankedAndListed}, {2, kRankedAndListed}}) {
        const RecordSetup setup{
            .config = config_, .ranks = ranks, .tensor = ranks, .wanted = wanted};
        const StepPlan plan = plan_of(setup, 4);
        StepPlan without = plan;
        without.partition.records.columns = {};
        World::threads(plan.mesh().size(), {.timeout_seconds = 30}).run([&](Communicator& world) {
            const std::unique_ptr<Device> device = make_host_device();
            TrainedRank rank(world, *device, plan, {.seed = kRecordSeed});
            rank.run(batch_.microbatches());
            const auto planned = [&](const StepPlan& of) {
                return persistent_bytes(of.model, of.partition, of.schedule, world.rank()).total();
            };
            const int64_t made = rank.output() != nullptr ? rank.output()->records().bytes() : 0;
            EXPECT_EQ(planned(plan) - planned(without), made) << "rank " << world.rank();
        });
    }
}

TEST_F(RecordsOfSteps, ThatAreNotAskedForAreRefused) {
    const StepPlan plan =
        plan_step(config_, {}, {}, {.microbatches = 4, .micro_batch_size = 2, .evaluation = true});
    World::threads(1, {.timeout_seconds = 30}).run([&](Communicator& world) {
        const std::unique_ptr<Device> device = make_host_device();
        TrainedRank rank(world, *device, plan);
        EXPECT_THROW((void)rank.records(TokenRecord::loss), UsageError);
    });
    const auto plan_with = [&](const TokenRecordOptions& records) {
        (void)plan_step(config_, {}, {}, {.evaluation = true, .records = records});
    };
    EXPECT_THROW(plan_with({.temperature = 0}), UsageError);
    EXPECT_THROW(plan_with({.columns = TokenRecords::best(25)}), UsageError);  // of 24
    EXPECT_THROW(plan_with({.columns = TokenRecords::best(0)}), UsageError);
    EXPECT_THROW(plan_with({.allowed_tokens = {true}}), UsageError);
    EXPECT_THROW(plan_with({.allowed_tokens = std::vector<bool>(kRecordVocabulary)}), UsageError);
    EXPECT_THROW((void)token_record_from("lossy"), UsageError);
}

}  // namespace
}  // namespace vocabpipe::testing
