// SPDX-License-Identifier: Apache-2.0
// Models that nobody designed, cut and scheduled at random: the bits of one rank, and gradients
// against finite differences.
//
// VOCABPIPE_PROPERTY_CASES: models per property. VOCABPIPE_GRAPH_SEED: the model of this seed
// alone.
#include "tests/support/number_of_cases.hpp"
#include "tests/train/random_graph.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/model_graph.hpp"
#include "vocabpipe/trained_rank.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

constexpr int kMostRanksOfGraph = 4;
constexpr int kStepsOfGraph = 2;

/// How a model is cut and run.
struct RandomCut {
    StepCluster cluster;
    StepSchedule schedule;
    StepWork work;
};

std::string describe(const RandomCut& cut) {
    std::ostringstream out;
    out << cut.schedule.name << " " << to_string(cut.schedule.vocab_mode) << " on "
        << cut.cluster.ranks << " ranks, recompute " << to_string(cut.schedule.recompute) << ", "
        << cut.work.microbatches << " microbatches of " << cut.work.micro_batch_size
        << " sequences, layers";
    for (const int layers : cut.schedule.layers_per_stage) out << " " << layers;
    return out.str();
}

/// `stages` numbers of at least 1 with this sum.
std::vector<int> random_layers(int layers, int stages, std::mt19937_64& random) {
    std::vector<int> of_stage(static_cast<size_t>(stages), 1);
    for (int left = layers - stages; left > 0; --left) {
        ++of_stage[random() % static_cast<uint64_t>(stages)];
    }
    return of_stage;
}

RandomCut random_cut(const ModelConfig& config, uint64_t seed) {
    std::mt19937_64 random(seed + 1'000'003);
    std::vector<std::pair<const Generator*, int>> possible;  // family, ranks
    for (const Generator& family : generators()) {
        for (int ranks = 1; ranks <= kMostRanksOfGraph; ++ranks) {
            if (ranks * family.chunks <= config.num_layers) possible.emplace_back(&family, ranks);
        }
    }
    const auto [family, ranks] = possible[random() % possible.size()];
    RandomCut cut;
    cut.cluster.ranks = ranks;
    cut.schedule.name = family->name;
    constexpr std::array kModes{VocabMode::none, VocabMode::none, VocabMode::interlaced,
                                VocabMode::one_barrier, VocabMode::two_barriers};
    cut.schedule.vocab_mode = kModes[random() % kModes.size()];
    cut.schedule.recompute = static_cast<Recompute>(random() % 3);
    if (random() % 4 > 0) {
        cut.schedule.layers_per_stage =
            random_layers(config.num_layers, ranks * family->chunks, random);
    }
    cut.work.microbatches = static_cast<int>(1 + random() % 5);
    cut.work.micro_batch_size = static_cast<int64_t>(1 + random() % 2);
    return cut;
}

void run_on_ranks(const std::vector<StepPlan>& plans,
                  const std::function<void(TrainedRank&)>& body) {
    const int ranks = plans.front().mesh().size();
    World::threads(ranks, {.timeout_seconds = 60}).run([&](Communicator& world) {
        const std::unique_ptr<Device> device = make_host_device();
        TrainedRank rank(world, *device, plans, {.poison_dead_buffers = true});
        body(rank);
    });
}

double sum_of(std::span<const double> losses) {
    return std::reduce(losses.begin(), losses.end());
}

/// The losses of a rank's own stages in its last step.
double stage_losses(TrainedRank& rank) {
    double sum = 0;
    for (const std::span<const double> losses : rank.model().stage_losses()) sum += sum_of(losses);
    return sum;
}

/// What a training leaves.
struct Trained {
    std::vector<double> losses;                             ///< of the steps, then of an evaluation
    std::map<std::string, std::vector<std::byte>> weights;  ///< whole ones, by name
    std::vector<std::vector<float>> results;                ///< of the evaluation
};

Trained train_graph(const ModelConfig& config, const RandomCut& cut, uint64_t seed, int results) {
    StepWork evaluation = cut.work;
    evaluation.evaluation = true;
    const std::vector<StepPlan> plans{plan_step(config, cut.cluster, cut.schedule, cut.work),
                                      plan_step(config, cut.cluster, cut.schedule, evaluation)};
    Trained result;
    std::mutex mutex;
    double of_stages = 0, of_output = 0;
    run_on_ranks(plans, [&](TrainedRank& rank) {
        const auto batch_of = [&](int step) {
            return RandomGraphBatch(config, cut.work.microbatches, cut.work.micro_batch_size,
                                    seed + static_cast<uint64_t>(step));
        };
        for (int step = 0; step < kStepsOfGraph; ++step) {
            const RandomGraphBatch batch = batch_of(step);
            rank.train_step(batch.microbatches(), batch.counted(), 1e-2);
            if (rank.communicator().rank() == 0) result.losses.push_back(rank.report().loss);
        }
        rank.run(batch_of(kStepsOfGraph).microbatches(), 1);
        std::vector<std::vector<float>> kept;
        for (int i = 0; i < results; ++i) kept.push_back(rank.results("r" + std::to_string(i)));
        const std::scoped_lock lock(mutex);
        result.results = std::move(kept);
        of_stages += stage_losses(rank);
        // Every rank with rows of the vocabulary has all of it.
        if (rank.output() != nullptr) of_output = sum_of(rank.output()->losses());
        for (const Parameter& p : rank.parameters()) {
            if (p.weight.rows != p.logical_rows) continue;
            const auto* const first = p.weight.as<std::byte>();
            result.weights[p.name].assign(first, first + p.weight.bytes());
        }
    });
    result.losses.push_back(of_stages + of_output);
    return result;
}

/// What is different; empty: nothing.
std::string difference(const Trained& alone, const Trained& cut, bool all_bits) {
    for (size_t i = 0; i < alone.losses.size(); ++i) {
        // Partial sums of the loss have another order; in bf16 so have those of shards.
        const double bound = (all_bits ? 1e-9 : 2e-2) * std::abs(alone.losses[i]) + 1e-9;
        if (!(std::abs(cut.losses[i] - alone.losses[i]) <= bound)) {
            return "loss " + std::to_string(i) + " is " + std::to_string(cut.losses[i]) +
                   " where one rank has " + std::to_string(alone.losses[i]);
        }
    }
    if (!all_bits) return "";
    if (cut.results != alone.results) return "other results";
    if (cut.weights.size() != alone.weights.size()) return "other weights";
    std::string names;
    for (const auto& [name, weight] : cut.weights) {
        if (weight != alone.weights.at(name)) names += name + " ";
    }
    return names.empty() ? "" : "other bits of " + names;
}

/// The seeds of a property: all, or that of VOCABPIPE_GRAPH_SEED alone.
std::vector<uint64_t> seeds(int usual) {
    if (const char* const one = std::getenv("VOCABPIPE_GRAPH_SEED")) {
        return {std::strtoull(one, nullptr, 10)};
    }
    std::vector<uint64_t> all;
    for (int i = 0; i < number_of_cases(usual); ++i) all.push_back(static_cast<uint64_t>(i));
    return all;
}

/// The model of a seed with its type.
RandomGraph typed_graph(uint64_t seed) {
    RandomGraph graph = random_graph(seed, 8);
    if (seed % 4 == 3) graph.config.dtype = DType::bf16;
    return graph;
}

/// What is different from one rank; empty: nothing.
std::string fault_of(const ModelConfig& config, const RandomCut& cut, uint64_t seed,
                     int results = 0) {
    RandomCut alone = cut;
    alone.cluster.ranks = 1;
    alone.schedule = {.vocab_mode = VocabMode::none};
    // Its backward takes microbatches in another order, in which gradients are added up.
    if (cut.schedule.name == "looped-bfs") {
        alone.schedule.name = cut.schedule.name;
        alone.schedule.rule.chunks = 1;
    }
    const bool shards = config.embeds_tokens && config.has_output_layer &&
                        cut.schedule.vocab_mode != VocabMode::none;
    try {
        return difference(train_graph(config, alone, seed, results),
                          train_graph(config, cut, seed, results), !shards);
    } catch (const std::exception& error) {
        return error.what();
    }
}

std::string describe(uint64_t seed, const RandomGraph& graph, const RandomCut& cut) {
    return "seed " + std::to_string(seed) + ": " + describe(cut) +
           (graph.config.dtype == DType::bf16 ? ", bf16" : "") +
           (graph.config.tied ? ", tied" : "") + "\n" + graph.description;
}

TEST(RandomGraphs, HaveTheBitsOfOneRankInEveryScheduleAndCut) {
    for (const uint64_t seed : seeds(500)) {
        const RandomGraph graph = typed_graph(seed);
        const RandomCut cut = random_cut(graph.config, seed);
        if (std::getenv("VOCABPIPE_GRAPH_SEED") != nullptr) {
            std::cout << describe(seed, graph, cut) << std::flush;  // it may end the program
        }
        EXPECT_EQ(fault_of(graph.config, cut, seed, graph.results), "")
            << describe(seed, graph, cut);
    }
}

// --- what they have found ------------------------------------------------------------------------

/// A norm whose input has no gradient.
void norm_of_data(ModelGraph& g) {
    g.squared_error(g.rms_norm("norm", g.data_columns(0, 4)), 2);
    g.squared_error(g.layer_norm("another", g.data_columns(1, 4)), 2);
}

/// The output layer reads what every stage may make, and nothing else does.
void output_of_data(ModelGraph& g) {
    g.cross_entropy(g.linear("classes", g.embedded_tokens(), {.out = {kRandomClasses}}));
    g.pipeline_stage();
    g.squared_error(g.linear("out", g.data_columns(0, 4), {.out = {2}}), 2);
    g.output(g.data_columns(0, g.model().hidden_size));
}

/// One operation can compute a product or a norm and the sum that reads it; not across stages.
void sums_of_earlier_layers(ModelGraph& g) {
    const LayerValue x = g.embedded_tokens();
    const LayerValue made = g.linear("made", x, {.out = {4}});
    const LayerValue norm = g.rms_norm("norm", x);
    g.pipeline_stage();
    const LayerValue both = g.join_columns({g.scale(x, 0.5F) + made, g.scale(x, 0.7F) + norm});
    g.output(g.linear("both", both, {.out = {4}}));
}

/// Likewise of a product and GELU, and of GELU and a product's backward.
void gelu_of_earlier_layers(ModelGraph& g) {
    LayerValue x = g.linear("before", g.embedded_tokens(), {.out = {24}});
    g.pipeline_stage();
    x = g.activation(kernels::Activation::gelu_tanh, x);
    g.pipeline_stage();
    g.output(g.linear("after", x, {.out = {4}}));
}

TEST(RandomGraphs, HaveFoundModelsThatHaveTheBitsOfOneRankNow) {
    for (const auto& [name, forward] :
         std::map<std::string, ModelForward>{{"norm_of_data", norm_of_data},
                                             {"output_of_data", output_of_data},
                                             {"sums_of_earlier_layers", sums_of_earlier_layers},
                                             {"gelu_of_earlier_layers", gelu_of_earlier_layers}}) {
        for (const DType dtype : {DType::fp32, DType::bf16}) {
            SCOPED_TRACE(name + (dtype == DType::bf16 ? " in bf16" : ""));
            const ModelConfig config = model_of(forward, {.hidden_size = 4,
                                                          .seq_length = 12,
                                                          .vocab_size = 19,
                                                          .dtype = dtype,
                                                          .init_std = 0.4F});
            const RandomCut cut{.cluster = {.ranks = config.num_layers},
                                .schedule = {.name = "zb-h1", .vocab_mode = VocabMode::none},
                                .work = {.microbatches = 3, .micro_batch_size = 2}};
            EXPECT_EQ(fault_of(config, cut, 1), "");
        }
    }
}

// --- gradients -----------------------------------------------------------------------------------

/// Sum of the losses of a step on one rank, without an update.
double loss_of_step(TrainedRank& rank, const RandomGraphBatch& batch) {
    rank.run(batch.microbatches());
    return stage_losses(rank) + (rank.output() ? sum_of(rank.output()->losses()) : 0);
}

/// The derivative of the step's loss along a direction of a parameter, without the error of third
/// order.
double difference_along(TrainedRank& rank, const RandomGraphBatch& batch, Parameter& p,
                        const std::vector<float>& direction, float step) {
    auto* const weight = p.weight.as<float>();
    const std::vector<float> before(weight, weight + p.weight.size());
    const auto at = [&](float by) {
        for (size_t i = 0; i < before.size(); ++i) weight[i] = before[i] + by * direction[i];
        return loss_of_step(rank, batch);
    };
    const double wide = (at(2 * step) - at(-2 * step)) / (4.0 * step);
    const double narrow = (at(step) - at(-step)) / (2.0 * step);
    std::ranges::copy(before, weight);
    return (4 * narrow - wide) / 3;
}

TEST(RandomGraphs, HaveTheGradientsOfFiniteDifferences) {
    for (const uint64_t seed : seeds(400)) {
        RandomGraph graph = random_graph(seed, 4);
        const std::string which = ", seed " + std::to_string(seed) + "\n" + graph.description;
        graph.config.tied = false;  // without an optimizer nobody adds up the halves
        const StepPlan plan =
            plan_step(graph.config, {}, {.vocab_mode = VocabMode::none},
                      {.microbatches = 2, .micro_batch_size = 2, .optimizer = false});
        run_on_ranks({plan}, [&](TrainedRank& rank) {
            const RandomGraphBatch batch(graph.config, 2, 2, seed);
            const double loss = std::abs(loss_of_step(rank, batch));
            std::mt19937_64 random(seed);
            for (Parameter& p : rank.parameters()) {
                double expected = 0;
                std::vector<float> direction;
                for (int64_t i = 0; i < p.weight.size(); ++i) {
                    direction.push_back(random() % 2 == 0 ? 1.0F : -1.0F);
                    expected += static_cast<double>(p.gradient.as<float>()[i]) * direction.back();
                }
                const double bound = 5e-3 * std::abs(expected) + 5e-4 * (1 + loss);
                double found = difference_along(rank, batch, p, direction, 4e-3F);
                // Where the loss bends more: nearer, with more noise.
                if (std::abs(found - expected) > bound) {
                    found = difference_along(rank, batch, p, direction, 1e-3F);
                }
                EXPECT_NEAR(found, expected, bound) << p.name << which;
                (void)loss_of_step(rank, batch);
            }
        });
    }
}

}  // namespace
}  // namespace vocabpipe::testing
