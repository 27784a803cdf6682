// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/modules.hpp"
#include "vocabpipe/tensor.hpp"
#include "vocabpipe/tile_link.hpp"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// The largest number of panels, at least 1 and at most `wanted`, that divides `heads`.
[[nodiscard]] int panels_of(int64_t heads, int wanted);

/// One operation of a link in which every member sends panels to every other: the first panel to
/// all, then the second, and so on. A member may compute a later panel from earlier ones that have
/// arrived. All panels lie in one range of memory; a member's panels for itself stay where they
/// are.
class PanelExchange {
public:
    /// `memory`: where all panels lie.
    PanelExchange(TileLink& link, Bytes memory);

    /// Adds a panel, dense, for a member. Its number is the count of those before it.
    void send(int member, ConstTensor panel);
    /// Adds a panel that comes from a member, of the size that the member sends.
    void receive(int member, Tensor panel);
    /// Receives begin. `what`: for messages.
    void start(std::string_view what);
    /// The first `panels` panels for every member may leave.
    void release(int panels);
    /// Waits for the first `panels` panels of every member.
    void wait(int panels);
    void finish() { operation_->finish(); }

private:
    struct Pieces {
        std::vector<int64_t> begins, ends;
        void add(const std::byte* memory, ConstTensor panel);
    };

    TileLink& link_;
    Bytes memory_;
    std::vector<Pieces> out_, in_;  ///< [member]
    std::optional<TileLink::Operation> operation_;
};

}  // namespace vocabpipe
