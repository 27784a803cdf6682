// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/check_model_gradients.hpp"

#include "vocabpipe/error.hpp"
#include "vocabpipe/sample_source.hpp"
#include "vocabpipe/trained_rank.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

constexpr int kMicrobatches = 2;

/// Random tokens, labels, weights and columns; a label in eight is ignored.
class RandomData {
public:
    RandomData(const ModelConfig& model, const ModelGradientCheckOptions& options) {
        std::mt19937_64 random(options.seed);
        std::uniform_real_distribution<float> number(-1, 1);
        const auto below = [&](int64_t count) {
            return static_cast<int32_t>(random() % static_cast<uint64_t>(count));
        };
        const auto tokens = static_cast<size_t>(options.sequences * model.seq_length);
        const auto columns = static_cast<size_t>(options.columns);
        const int64_t labels = options.labels > 0 ? options.labels : model.vocab_size;
        for (size_t n = 0; n < kMicrobatches * tokens; ++n) {
            tokens_.push_back(below(model.vocab_size));
            labels_.push_back(below(8) == 0 ? kIgnoredLabel : below(labels));
            weights_.push_back(labels_.back() < 0 ? 0 : 1 / static_cast<float>(2 * tokens));
        }
        for (size_t n = 0; n < kMicrobatches * tokens * columns; ++n) {
            columns_.push_back(number(random));
        }
        for (int j = 0; j < kMicrobatches; ++j) {
            const size_t first = static_cast<size_t>(j) * tokens;
            microbatches_.push_back(
                {.index = j,
                 .sequences = options.sequences,
                 .seq_length = model.seq_length,
                 .tokens = std::span(tokens_).subspan(first, tokens),
                 .labels = std::span(labels_).subspan(first, tokens),
                 .loss_gradient = std::span(weights_).subspan(first, tokens),
                 .columns = std::span(columns_).subspan(first * columns, tokens * columns)});
        }
    }
    [[nodiscard]] std::span<const Microbatch> microbatches() const { return microbatches_; }

private:
    std::vector<int32_t> tokens_, labels_;
    std::vector<float> weights_, columns_;
    std::vector<Microbatch> microbatches_;
};

/// A training of gradients alone, on `ranks` ranks.
StepPlan plan_gradients(const ModelConfig& model, const ModelGradientCheckOptions& options,
                        int ranks) {
    return plan_step(
        model, {.ranks = ranks}, {.vocab_mode = VocabMode::none},
        {.microbatches = kMicrobatches, .micro_batch_size = options.sequences, .optimizer = false});
}

/// Calls body(rank) on every rank.
template <typename Body>
void on_ranks(const StepPlan& plan, uint64_t seed, const Body& body) {
    World::threads(plan.mesh().size(), {.timeout_seconds = 60}).run([&](Communicator& world) {
        const std::unique_ptr<Device> device = make_host_device();
        TrainedRank rank(world, *device, plan, {.seed = seed});
        body(rank);
    });
}

/// The loss of a step, all of it on this rank.
double loss_of(TrainedRank& rank, const RandomData& data) {
    rank.run(data.microbatches());
    double sum = 0;
    const auto add = [&](std::span<const double> losses) {
        for (const double loss : losses) sum += loss;
    };
    for (const std::span<const double> losses : rank.model().stage_losses()) add(losses);
    if (rank.output() != nullptr) add(rank.output()->losses());
    return sum;
}

using Numbers = std::vector<double>;

double euclidean_length(const Numbers& values) {
    double sum = 0;
    for (const double value : values) sum += value * value;
    return std::sqrt(sum);
}

Numbers numbers_of(ConstTensor tensor) {
    const auto* const first = tensor.as<float>();
    return {first, first + tensor.size()};
}

/// Along half the gradient and half at random, of length 1.
Numbers direction_of(const Numbers& gradient, std::mt19937_64& random) {
    std::normal_distribution<double> draw;
    Numbers direction;
    for (size_t i = 0; i < gradient.size(); ++i) direction.push_back(draw(random));
    const double along = euclidean_length(gradient), across = euclidean_length(direction);
    for (size_t i = 0; i < gradient.size(); ++i) {
        direction[i] = direction[i] / across + (along > 0 ? gradient[i] / along : 0);
    }
    const double length = euclidean_length(direction);
    for (double& value : direction) value /= length;
    return direction;
}

/// Relative error of the rate at which the loss grows, and its check.
double check_parameter(TrainedRank& rank, const RandomData& data, const Parameter& parameter,
                       const Numbers& gradient, std::mt19937_64& random,
                       const ModelGradientCheckOptions& options) {
    const Numbers before = numbers_of(parameter.weight);
    const Numbers direction = direction_of(gradient, random);
    double expected = 0;
    for (size_t i = 0; i < gradient.size(); ++i) expected += gradient[i] * direction[i];
    // Relative to the weights' length, and at least as if they had the usual size.
    const double length =
        std::max(euclidean_length(before), 0.1 * std::sqrt(static_cast<double>(before.size())));
    const double step = options.step * length;
    const auto at = [&](double steps) {
        for (size_t i = 0; i < before.size(); ++i) {
            parameter.weight.as<float>()[i] =
                static_cast<float>(before[i] + steps * step * direction[i]);
        }
        return loss_of(rank, data);
    };
    // Without the errors of second and fourth order.
    const double rate = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step);
    (void)at(0);
    // What rounding of the losses leaves of a rate that is small.
    const double rounding = 1e-5 / length;
    const double error = std::abs(rate - expected) /
                         std::max({std::abs(rate), euclidean_length(gradient), rounding});
    if (error <= options.bound) return error;
    char text[256];
    std::snprintf(text, sizeof text,
                  ": the loss grows at the rate %.6g, but the gradient says %.6g (relative error "
                  "%.2g, bound %.2g)",
                  rate, expected, error, options.bound);
    throw Error(ExitCode::wrong_values, "check_gradients: gradient of " + parameter.name + text);
}

/// By name: the gradients of every use of a weight, by layer.
using Gradients = std::map<std::string, std::vector<Numbers>>;

void add_gradients(TrainedRank& rank, Gradients& to) {
    for (const Parameter& parameter : rank.parameters()) {
        to[parameter.name].push_back(numbers_of(parameter.gradient));
    }
}

void compare(const Gradients& cut, const Gradients& alone) {
    for (const auto& [name, uses] : alone) {
        for (size_t use = 0; use < uses.size(); ++use) {
            Numbers difference = cut.at(name).at(use);
            for (size_t i = 0; i < difference.size(); ++i) difference[i] -= uses[use][i];
            if (euclidean_length(difference) <= 1e-4 * euclidean_length(uses[use])) continue;
            throw Error(ExitCode::wrong_values, "check_gradients: gradient of " + name +
                                                    ": is another where every layer is a stage");
        }
    }
}

}  // namespace

GradientCheck check_gradients(ModelConfig model, const ModelGradientCheckOptions& options) {
    model.dtype = DType::fp32;
    model.tied = false;  // without an optimizer nobody adds up the two gradients of a tied weight
    const RandomData data(model, options);
    GradientCheck largest;
    Gradients alone;
    on_ranks(plan_gradients(model, options, 1), options.seed, [&](TrainedRank& rank) {
        (void)loss_of(rank, data);
        add_gradients(rank, alone);
        std::vector<Numbers> gradients;
        for (const Parameter& parameter : rank.parameters()) {
            gradients.push_back(numbers_of(parameter.gradient));
        }
        std::mt19937_64 random(options.seed);
        for (size_t i = 0; i < gradients.size(); ++i) {
            const Parameter& parameter = rank.parameters()[i];
            const double error =
                check_parameter(rank, data, parameter, gradients[i], random, options);
            if (error > largest.error) largest = {.error = error, .name = parameter.name};
        }
    });
    if (model.num_layers == 1) return largest;
    std::vector<Gradients> of_ranks(static_cast<size_t>(model.num_layers));
    on_ranks(plan_gradients(model, options, model.num_layers), options.seed,
             [&](TrainedRank& rank) {
                 (void)loss_of(rank, data);
                 add_gradients(rank, of_ranks[static_cast<size_t>(rank.communicator().rank())]);
             });
    Gradients cut;
    for (const Gradients& of_rank : of_ranks) {  // in the order of layers
        for (const auto& [name, uses] : of_rank) {
            cut[name].insert(cut[name].end(), uses.begin(), uses.end());
        }
    }
    compare(cut, alone);
    return largest;
}

}  // namespace vocabpipe
