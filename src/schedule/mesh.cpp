// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/mesh.hpp"

#include "vocabpipe/error.hpp"

#include <array>
#include <string>

namespace vocabpipe {

std::string_view to_string(Axis axis) {
    constexpr std::array<std::string_view, kAxes.size()> names{
        "pipeline", "model", "tensor",      "context",     "context_tensor",
        "expert",   "data",  "data_tensor", "expert_data", "world"};
    return names[static_cast<size_t>(axis)];
}

Mesh::Slices Mesh::slices_along(Axis axis, int slice) const {
    switch (axis) {
        case Axis::pipeline:
            return {slice, 1, 1};
        case Axis::model:
        case Axis::tensor:
            return {slice - slice % tensor, 1, tensor};
        case Axis::context: {
            const int replica = slice / (context * tensor);
            return {replica * context * tensor + slice % tensor, tensor, context};
        }
        case Axis::context_tensor:
            return {slice - slice % (context * tensor), 1, context * tensor};
        case Axis::expert:
            return {slice - slice % expert, 1, expert};
        case Axis::data:
            return {slice % tensor, tensor, data * context};
        case Axis::expert_data:
            return {slice % expert, expert, slices() / expert};
        case Axis::data_tensor:
        case Axis::world:
            break;
    }
    return {0, 1, slices()};
}

std::vector<int> Mesh::ranks_along(Axis axis, Place place) const {
    const bool all = spans_pipeline(axis);
    const Slices of = slices_along(axis, slice(place));
    std::vector<int> ranks;
    ranks.reserve(static_cast<size_t>(size_of(axis)));
    for (int k = all ? 0 : place.pipeline; k < (all ? pipeline : place.pipeline + 1); ++k) {
        for (int n = 0; n < of.count; ++n) ranks.push_back(k * slices() + of[n]);
    }
    return ranks;
}

void Mesh::check() const {
    const auto expect = [](bool ok, const std::string& what) {
        if (!ok) throw UsageError("mesh: " + what);
    };
    const auto text = [](int number) { return std::to_string(number); };
    expect(pipeline >= 1 && data >= 1 && context >= 1 && tensor >= 1 && expert >= 1,
           text(pipeline) + " pipeline, " + text(data) + " data, " + text(context) + " context, " +
               text(tensor) + " tensor and " + text(expert) +
               " expert ranks; each number must be at least 1");
    expect(slices() % expert == 0,
           text(expert) + " expert ranks must divide the " + text(slices()) + " slices of " +
               text(data) + " data x " + (context > 1 ? text(context) + " context x " : "") +
               text(tensor) + " tensor ranks; use a divisor of " + text(slices()));
    const auto expect_nested = [&](int team, const std::string& what) {
        expect(nests(expert, team),
               text(expert) + " expert ranks and " + text(team) + " " + what +
                   " do not nest; one of the two must be a multiple of the other");
    };
    expect_nested(tensor, "tensor ranks");
    expect_nested(context * tensor, "context and tensor ranks");
}

}  // namespace vocabpipe
