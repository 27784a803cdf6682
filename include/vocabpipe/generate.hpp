// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/schedule.hpp"

#include <cstdint>
#include <span>
#include <string_view>

namespace vocabpipe {

struct GenerateOptions {
    int ranks = 1;
    int microbatches = 1;
    VocabMode vocab_mode = VocabMode::none;
    int64_t vocab_size = 0;  ///< rows to shard; with fewer rows than ranks some shards stay empty
    /// Pass costs in integer units, so that the slot rule compares exactly; only their ratio
    /// matters. 1 : 2 is the usual transformer; measured costs move ranks between B,S,F and B,F,S.
    int64_t forward_cost = 1;
    int64_t backward_cost = 2;
    /// Latency to hide between the last stage's F and the earliest S, same unit; the orders are
    /// built for backward_cost - c0_margin. 0 keeps the paper's lists.
    int64_t c0_margin = 0;
    bool forward_only =
        false;  ///< evaluation: E, F, S and the loss, no limit from passes in flight
};

/// One schedule family. `make` may assume 1 <= ranks, 1 <= microbatches and costs >= 1.
struct Generator {
    std::string_view name;     ///< as typed after --schedule
    std::string_view summary;  ///< one line for listings
    Schedule (*make)(const GenerateOptions&);
};

/// Every built-in family, in the order in which listings show them.
[[nodiscard]] std::span<const Generator> generators();

/// The schedule of family `name`; passes on empty shards are left out. Throws UsageError for an
/// unknown name (naming the known ones) or impossible options.
[[nodiscard]] Schedule generate(std::string_view name, const GenerateOptions& options);

/// Transformer layers per stage. Even split (the first num_layers % stages stages take one more),
/// except VocabMode::redistributed, which moves layers away from the last stage: with q = output
/// layer / one transformer layer in FLOPs it keeps max(0, ceil((L + q) / p - q)) layers, and the
/// others share the rest (vocabulary-parallelism reference, "layer redistribution").
[[nodiscard]] std::vector<int> layers_per_stage(int num_layers, int stages, VocabMode mode,
                                                double output_layer_in_layers);

}  // namespace vocabpipe
