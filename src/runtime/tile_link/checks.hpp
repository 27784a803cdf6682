// SPDX-License-Identifier: Apache-2.0
// Checks of arguments and names of pieces in errors, for the links of all devices.
#pragma once

#include "src/runtime/transport/transport.hpp"
#include "vocabpipe/tile_link.hpp"

#include <span>
#include <string>
#include <vector>

namespace vocabpipe::tile_link {

/// The number of `rank` in the team. Throws UsageError unless the ranks are distinct, exist, and
/// have it among them.
[[nodiscard]] int own_member(std::span<const int> ranks, int rank, int world_size);

/// 0, 1, ..., world_size - 1.
[[nodiscard]] std::vector<int> all_ranks(int world_size);

/// The channel of a team that computes layers together. Throws UsageError for axes other than
/// tensor, context and expert.
[[nodiscard]] Channel channel_of(Axis axis);

/// The channel of its lane (TileLinkOptions::lane). Members of a team are at one place of the
/// pipeline, so lane 1 takes the channels of messages between stages, which they never send each
/// other. Tensor and context ranks share one: a pass does not exchange with both at once.
[[nodiscard]] Channel channel_of(Axis axis, int lane);

/// "all-gather of qkv, layer 7".
[[nodiscard]] std::string text_of(const TileLink::Name& name);

/// Throws UsageError unless there is a part for each member, with ends that fit, and the part of
/// `self` is equal on both sides.
void check_parts(const std::string& name, int self, size_t members,
                 std::span<const TileLink::Outgoing> send,
                 std::span<const TileLink::Incoming> receive);

/// Throws UsageError unless 0 <= pieces <= most; `what` names the operation on them.
void check_pieces(const std::string& name, const char* what, int member, int pieces, int most);

/// "rank 0: all-gather of qkv, layer 7: waits for piece 2 of member 1 (rank 1)".
[[nodiscard]] std::string piece_text(int rank, const std::string& name, const char* what,
                                     int member, int piece, std::span<const int> ranks);

/// Text of the first piece that is missing: of those that arrive from `member` (-1: from all), or
/// else of those that leave.
template <typename Inbox, typename Outbox>
[[nodiscard]] std::string missing_text(int rank, const std::string& name,
                                       const std::vector<Inbox>& in, const std::vector<Outbox>& out,
                                       int member, std::span<const int> ranks) {
    const auto first_of = [&](const auto& boxes, const char* what, int only) {
        int m = 0;
        for (const auto& box : boxes) {
            if ((only < 0 || m == only) && box.done < box.pieces()) {
                return piece_text(rank, name, what, m, box.done, ranks);
            }
            ++m;
        }
        return std::string();
    };
    std::string text = first_of(in, "waits for", member);
    if (text.empty()) text = first_of(out, "waits until it is rid of", -1);
    return text.empty() ? "rank " + std::to_string(rank) + ": " + name + ": waits" : text;
}

/// Bytes of a piece.
template <typename Part>
[[nodiscard]] auto piece_of(const Part& part, int piece) {
    const auto at = static_cast<size_t>(piece);
    const int64_t begin = !part.begins.empty() ? part.begins[at]
                          : piece == 0         ? 0
                                               : part.ends[at - 1];
    return part.bytes.subspan(static_cast<size_t>(begin),
                              static_cast<size_t>(part.ends[at] - begin));
}

/// Throws if the link cannot start an operation: UsageError while `running` has not finished (null:
/// none), CommunicationError after one has failed.
void check_idle(int rank, const std::string& name, bool broken, const std::string* running);

}  // namespace vocabpipe::tile_link
