// SPDX-License-Identifier: Apache-2.0
// Names of the ranks of a mesh in texts and pictures. Coordinates that all ranks share are left
// out.
#pragma once

#include "vocabpipe/mesh.hpp"

#include <string>

namespace vocabpipe {

/// "rank 5 (pipeline rank 1, replica 0, tensor rank 1)"; "rank 5" in a world of one pipeline.
[[nodiscard]] std::string rank_text(const Mesh& mesh, int world_rank);

/// Label of a rank's row below heading_text(): "rank 5 r0 t1"; "rank 5" in a world of one pipeline.
[[nodiscard]] std::string row_text(const Mesh& mesh, int world_rank);

/// Heading above a rank's row: "pipeline rank 1" for the first of its ranks; else, and in a world
/// of one pipeline, "".
[[nodiscard]] std::string heading_text(const Mesh& mesh, int world_rank);

}  // namespace vocabpipe
