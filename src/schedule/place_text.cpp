// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/place_text.hpp"

namespace vocabpipe {

namespace {

std::string rank(int world_rank) {
    return "rank " + std::to_string(world_rank);
}

}  // namespace

std::string rank_text(const Mesh& mesh, int world_rank) {
    std::string text = rank(world_rank);
    if (mesh.slices() == 1) return text;
    const Mesh::Place place = mesh.place(world_rank);
    text += " (pipeline rank " + std::to_string(place.pipeline);
    if (mesh.data > 1) text += ", replica " + std::to_string(place.data);
    if (mesh.context > 1) text += ", context rank " + std::to_string(place.context);
    if (mesh.tensor > 1) text += ", tensor rank " + std::to_string(place.tensor);
    return text + ")";
}

std::string row_text(const Mesh& mesh, int world_rank) {
    std::string text = rank(world_rank);
    const Mesh::Place place = mesh.place(world_rank);
    if (mesh.data > 1) text += " r" + std::to_string(place.data);
    if (mesh.context > 1) text += " c" + std::to_string(place.context);
    if (mesh.tensor > 1) text += " t" + std::to_string(place.tensor);
    return text;
}

std::string heading_text(const Mesh& mesh, int world_rank) {
    if (mesh.slices() == 1 || world_rank % mesh.slices() != 0) return {};
    return "pipeline rank " + std::to_string(mesh.pipeline_rank(world_rank));
}

}  // namespace vocabpipe
