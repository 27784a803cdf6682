// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// Which coordinates of the mesh vary inside a group of ranks that communicate.
enum class Axis : uint8_t {
    pipeline,        ///< k: the ranks of one pipeline, in one slice
    model,           ///< k and i: all ranks that compute with the same tokens
    tensor,          ///< i: ranks that share a stage
    context,         ///< c: ranks that share the sequences of one replica
    context_tensor,  ///< c and i: all ranks of one replica at one place of the pipeline
    expert,          ///< j: ranks that share the experts of a layer
    data,            ///< r and c: ranks with the same weights and different tokens
    data_tensor,     ///< r, c and i: all ranks at one place of the pipeline
    expert_data,     ///< q: ranks that hold the same experts
    world,           ///< all ranks
};
inline constexpr std::array kAxes{
    Axis::pipeline, Axis::model, Axis::tensor,      Axis::context,     Axis::context_tensor,
    Axis::expert,   Axis::data,  Axis::data_tensor, Axis::expert_data, Axis::world};
[[nodiscard]] std::string_view to_string(Axis axis);

/// Whether groups of the axis have ranks at every place of the pipeline.
[[nodiscard]] constexpr bool spans_pipeline(Axis axis) {
    return axis == Axis::pipeline || axis == Axis::model || axis == Axis::world;
}

/// How the ranks of a world divide: `data` replicas train on different sequences, each a pipeline
/// of `pipeline` ranks, whose stages `tensor` ranks share; `context` such pipelines share the
/// tokens of a replica's sequences (context_cut.hpp). World rank = ((k d + r) C + c) t + i, as in
/// Megatron's default order (tp-cp-ep-dp-pp): tensor ranks are neighbours, then context ranks, then
/// replicas of the same pipeline rank, so that mpirun puts ranks that communicate most on one host.
///
/// The d C t ranks at one place of the pipeline are numbered (r C + c) t + i; the ranks with equal
/// numbers are a *slice*, and slices run copies of the same programs. Experts are spread over
/// neighbouring slices: j = slice mod e says which experts a rank holds, and q = slice / e which
/// copy of them.
struct Mesh {
    int pipeline = 1;  ///< p, ranks of one pipeline
    int data = 1;      ///< d, replicas
    int tensor = 1;    ///< t, ranks that share a stage
    int expert = 1;    ///< e, ranks that share a layer's experts; divides d C t
    int context = 1;   ///< C, ranks that share a replica's sequences

    /// Coordinates of a rank.
    struct Place {
        int pipeline = 0;  ///< k
        int data = 0;      ///< r
        int tensor = 0;    ///< i
        int context = 0;   ///< c
        /// Member by member.
        friend bool operator==(const Place&, const Place&) = default;
    };
    /// Some slices at equal distances.
    struct Slices {
        int first = 0;  ///< lowest slice
        int step = 1;   ///< from one to the next
        int count = 1;  ///< how many
        /// The n-th slice, from 0.
        [[nodiscard]] constexpr int operator[](int n) const { return first + n * step; }
    };

    /// Ranks of the world.
    [[nodiscard]] constexpr int size() const { return pipeline * slices(); }
    /// Copies of a pipeline, d C t.
    [[nodiscard]] constexpr int slices() const { return data * context * tensor; }
    /// The rank of the world at this place.
    [[nodiscard]] constexpr int world_rank(Place place) const {
        return place.pipeline * slices() + slice(place);
    }
    /// The same for context rank 0 and tensor rank 0.
    [[nodiscard]] constexpr int world_rank(int pipeline_rank, int replica) const {
        return world_rank(Place{.pipeline = pipeline_rank, .data = replica});
    }
    /// Where a rank of the world is.
    [[nodiscard]] constexpr Place place(int world_rank) const {
        return {.pipeline = pipeline_rank(world_rank),
                .data = replica(world_rank),
                .tensor = world_rank % tensor,
                .context = world_rank / tensor % context};
    }
    /// k, place in the pipeline of a rank of the world.
    [[nodiscard]] constexpr int pipeline_rank(int world_rank) const {
        return world_rank / slices();
    }
    /// r, replica of a rank of the world.
    [[nodiscard]] constexpr int replica(int world_rank) const {
        return world_rank % slices() / (context * tensor);
    }
    /// Which slice a place belongs to.
    [[nodiscard]] constexpr int slice(Place place) const {
        return (place.data * context + place.context) * tensor + place.tensor;
    }

    /// j, which experts a place holds among those that share them.
    [[nodiscard]] constexpr int expert_rank(Place place) const { return slice(place) % expert; }

    /// The ranks of a tensor team are all in one expert team, or the other way round; and so are
    /// those of context_tensor.
    [[nodiscard]] constexpr bool teams_nest() const {
        return nests(expert, tensor) && nests(expert, context * tensor);
    }

    /// Slices that the group of the axis through `slice` joins, in the order of its members.
    [[nodiscard]] Slices slices_along(Axis axis, int slice) const;
    /// World ranks of the group of the axis through a place, ascending.
    [[nodiscard]] std::vector<int> ranks_along(Axis axis, Place place) const;
    /// Members of each group of an axis.
    [[nodiscard]] int size_of(Axis axis) const {
        return slices_along(axis, 0).count * (spans_pipeline(axis) ? pipeline : 1);
    }
    /// Throws UsageError unless all numbers are positive, expert ranks divide the slices, and
    /// their teams nest with those of tensor and context ranks.
    void check() const;

    /// Member by member.
    friend bool operator==(const Mesh&, const Mesh&) = default;

private:
    /// Whether teams of two sizes, each of neighbouring slices, contain each other.
    [[nodiscard]] static constexpr bool nests(int a, int b) { return a % b == 0 || b % a == 0; }
};

}  // namespace vocabpipe
