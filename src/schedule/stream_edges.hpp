// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/schedule/successors.hpp"
#include "vocabpipe/program.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vocabpipe {

/// The edges of a rank's program in two groups: `after` waits for the end of `before`, or for its
/// rows.
struct StreamEdges {
    static constexpr uint32_t kNone = UINT32_MAX;

    /// Actions that wait for the end of an action. `missing` counts edges of both groups.
    Successors ends;
    Successors rows;               ///< actions that wait for its first rows, along streamed edges
    std::vector<uint32_t> source;  ///< [action] whose rows it needs, or kNone; empty: none streamed

    StreamEdges() = default;
    /// `follow` false: treats streamed edges as plain ones.
    StreamEdges(const Program& program, bool follow) {
        const size_t count = program.actions.size();
        if (!follow || program.streamed.empty()) {
            ends = Successors(count, program.edges);
            return;
        }
        std::vector<Edge> usual;
        std::vector<Edge> streamed;
        usual.reserve(program.edges.size());
        for (uint32_t i = 0; i < program.edges.size(); ++i) {
            const size_t next = streamed.size();
            const bool streams = next < program.streamed.size() && program.streamed[next] == i;
            (streams ? streamed : usual).push_back(program.edges[i]);
        }
        ends = Successors(count, usual);
        rows = Successors(count, streamed);
        source.assign(count, kNone);
        for (const Edge& edge : streamed) {
            ++ends.missing[edge.after];
            source[edge.after] = edge.before;
        }
    }

    /// Whether any edge is streamed.
    [[nodiscard]] bool any() const { return !source.empty(); }
    /// The action that makes or receives rows while this one uses or sends them; kNone: all rows
    /// are complete before it starts.
    [[nodiscard]] uint32_t source_of(uint32_t action) const {
        return any() ? source[action] : kNone;
    }
    /// Actions that use rows of the action while it makes or receives them.
    [[nodiscard]] std::span<const uint32_t> takers_of(uint32_t action) const {
        return any() ? rows.of(action) : std::span<const uint32_t>();
    }
    /// Whether rows stream into the action or out of it.
    [[nodiscard]] bool streams(uint32_t action) const {
        return source_of(action) != kNone || !takers_of(action).empty();
    }
};

}  // namespace vocabpipe
