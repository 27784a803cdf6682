// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/error.hpp"
#include "vocabpipe/generate.hpp"

#include "schedules/gpipe.hpp"
#include "schedules/one_f_one_b.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

namespace vocabpipe {

namespace {

constexpr std::array kGenerators{
    Generator{"1f1b", "one forward, one backward; at most p-r microbatches in flight on rank r",
              one_f_one_b},
    Generator{"gpipe", "all forwards, then all backwards; all microbatches in flight", gpipe},
};

void require_at_least(std::string_view option, int64_t value, int64_t least) {
    if (value >= least) return;
    throw UsageError(std::string(option) + " " + std::to_string(value) + ": must be at least " +
                     std::to_string(least));
}

void require_at_most(std::string_view option, int64_t value, int64_t most) {
    if (value <= most) return;
    throw UsageError(std::string(option) + " " + std::to_string(value) + ": must be at most " +
                     std::to_string(most));
}

void check(const GenerateOptions& options) {
    require_at_least("--ranks", options.ranks, 1);
    // Stage numbers have 16 bits (Pass::stage).
    require_at_most("--ranks", options.ranks, std::numeric_limits<uint16_t>::max());
    require_at_least("--microbatches", options.microbatches, 1);
    // Far above any batch; keeps every count of the rules within an int.
    require_at_most("--microbatches", options.microbatches, 1 << 24);
    require_at_least("--vocab-size", options.vocab_size, 1);
    // Keeps vocab_size * ranks within 64 bits (ShardMap::even).
    require_at_most("--vocab-size", options.vocab_size, int64_t{1} << 40);
    require_at_least("--forward-cost", options.forward_cost, 1);
    require_at_least("--backward-cost", options.backward_cost, 1);
    require_at_least("--c0-margin", options.c0_margin, 0);
}

void drop_passes_on_empty_shards(Schedule& schedule) {
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        const bool no_input = schedule.input.rows(rank) == 0;
        const bool no_output = schedule.output.rows(rank) == 0;
        std::erase_if(schedule.passes[static_cast<size_t>(rank)], [&](const Pass& pass) {
            const bool input = pass.op == Op::E || pass.op == Op::G;
            return traits(pass.op).vocabulary && (input ? no_input : no_output);
        });
    }
}

}  // namespace

std::span<const Generator> generators() {
    return kGenerators;
}

Schedule generate(std::string_view name, const GenerateOptions& options) {
    const auto* found = std::find_if(kGenerators.begin(), kGenerators.end(),
                                     [&](const Generator& g) { return g.name == name; });
    if (found == kGenerators.end()) {
        std::string known;
        for (const Generator& g : kGenerators) {
            known += (known.empty() ? "" : ", ") + std::string(g.name);
        }
        throw UsageError("--schedule " + std::string(name) + ": not one of " + known);
    }
    check(options);
    Schedule schedule = found->make(options);
    drop_passes_on_empty_shards(schedule);
    return schedule;
}

std::vector<int> layers_per_stage(int num_layers, int stages, VocabMode mode,
                                  double output_layer_in_layers) {
    require_at_least("--layers", num_layers, 0);
    require_at_least("--stages", stages, 1);
    const double q = output_layer_in_layers;
    if (!std::isfinite(q) || q < 0) {
        throw UsageError("output layer of " + std::to_string(q) +
                         " transformer layers: must be a finite number that is not negative");
    }
    std::vector<int> layers(static_cast<size_t>(stages));
    if (mode != VocabMode::redistributed || stages == 1) {
        for (int stage = 0; stage < stages; ++stage) {
            layers[static_cast<size_t>(stage)] =
                num_layers / stages + (stage < num_layers % stages ? 1 : 0);
        }
        return layers;
    }
    // A quotient that is a whole number but for rounding must not be rounded up to the next one.
    const double share = std::ceil((num_layers + q) / stages - q - 1e-9);
    const int last = static_cast<int>(std::max(0.0, share));
    const int others = stages - 1;
    // What does not divide evenly goes one each to the stages before the last, from the back.
    for (int stage = 0; stage < others; ++stage) {
        const int extra = others - 1 - stage < (num_layers - last) % others ? 1 : 0;
        layers[static_cast<size_t>(stage)] = (num_layers - last) / others + extra;
    }
    layers.back() = last;
    return layers;
}

}  // namespace vocabpipe
