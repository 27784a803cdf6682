// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/knn/nearest_lists.hpp"
#include "src/select/knn/tiles.hpp"
#include "src/select/knn/unit_rows.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>

namespace vocabpipe {

/// Share of the k nearest that the lists of `samples` evenly spaced samples have, or others as near
/// as those to 2^-20: these samples are compared with all others. `rows` and `lists` are those of
/// this rank. Collective.
[[nodiscard]] double measure_recall(Communicator& world, Context& context, const UnitRows& rows,
                                    const NearestLists& lists, const TileOwners& owners,
                                    int64_t neighbours, int64_t samples);
/// Bytes of a rank for it.
[[nodiscard]] uint64_t recall_bytes(int64_t width, int ranks, int64_t neighbours, int64_t samples);

}  // namespace vocabpipe
