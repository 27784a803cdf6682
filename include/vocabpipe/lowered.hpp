// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/mesh.hpp"
#include "vocabpipe/program.hpp"

#include <compare>
#include <cstdint>
#include <vector>

namespace vocabpipe {

/// A buffer whose place or size differs between slices: each slice has another part of a reduction
/// over slices, in its bucket or as parts of several members.
struct SliceBlock {
    uint32_t buffer = 0;     ///< index into the program's buffers
    uint16_t reduction = 0;  ///< index into the program's reductions, which say where parts lie
    uint16_t copies = 1;     ///< members whose parts it holds, one after the other
    uint8_t width = 4;       ///< bytes of an element
    Axis axis = Axis::data;  ///< whose members the parts belong to
    /// Value of `own`: the buffer's place is counted from the begin of the first member's part.
    static constexpr uint16_t kCountedFromFirst = UINT16_MAX;
    /// The reduction of all members' whole parts, where the buffer's place is counted from the
    /// begin of this rank's own part.
    uint16_t own = kCountedFromFirst;
};

/// Ranks that communicate in one way, once or many times; a transport connects them beforehand.
struct Route {
    Do what = Do::send;            ///< send for both ends of a message
    Lane lane = Lane::collective;  ///< lane on both ends
    std::vector<int> ranks;        ///< of the world, as in Group
    int root = -1;                 ///< as in Group
    /// Member by member, in order: the same order on every rank.
    friend auto operator<=>(const Route&, const Route&) = default;
};

/// The programs of a world, stored as those of one pipeline and the mesh: all slices do the same in
/// the same order, and what differs follows from a rank's place. So a world of any size takes the
/// memory of one pipeline.
struct Lowered {
    Mesh mesh;  ///< of the world
    /// [pipeline rank] What all slices have in common. Program::rank and the groups hold pipeline
    /// ranks (Group::axis says which ranks of other slices belong to a group as well), orders are
    /// those of one pipeline, and buffers in `blocks` have the largest size that any slice needs.
    std::vector<Program> pipeline;
    std::vector<std::vector<SliceBlock>> blocks;  ///< [pipeline rank], ascending by buffer
    std::vector<Axis> stage_teams;  ///< [global stage] ranks that its passes communicate with

    /// Hash of all ranks' programs together.
    [[nodiscard]] uint64_t hash() const { return pipeline.front().hash; }
    /// The program of one rank, from 0 to mesh.size() - 1.
    [[nodiscard]] Program of(int world_rank) const;
    /// The programs of all ranks of the world; for small worlds.
    [[nodiscard]] std::vector<Program> all() const&;
    /// The same, without copies where there is one slice.
    [[nodiscard]] std::vector<Program> all() &&;
    /// Routes of all ranks, in order, each once.
    [[nodiscard]] std::vector<Route> routes() const;
};

/// Routes of the programs of a whole world, in order, each once.
[[nodiscard]] std::vector<Route> routes_of(const std::vector<Program>& programs);

}  // namespace vocabpipe
