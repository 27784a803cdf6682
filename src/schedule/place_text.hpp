// SPDX-License-Identifier: Apache-2.0
// How texts and pictures name the ranks of a mesh of several slices. Coordinates that all ranks
// have in common are left out.
#pragma once

#include "vocabpipe/mesh.hpp"

#include <string>

namespace vocabpipe {

/// "rank 5 (pipeline rank 1, replica 0, tensor rank 1)"; "rank 5" in a world of one pipeline.
[[nodiscard]] std::string rank_text(const Mesh& mesh, int world_rank);

/// Of a row among those of its pipeline rank: "rank 5 r0 t1"; "rank 5" in a world of one pipeline.
[[nodiscard]] std::string row_text(const Mesh& mesh, int world_rank);

/// What stands above the rows from this rank on: "pipeline rank 1" above the first of its ranks,
/// else, and in a world of one pipeline, nothing.
[[nodiscard]] std::string heading_text(const Mesh& mesh, int world_rank);

}  // namespace vocabpipe
