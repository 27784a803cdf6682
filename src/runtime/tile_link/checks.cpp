// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/tile_link/checks.hpp"

#include "vocabpipe/error.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace vocabpipe::tile_link {

namespace {

/// Checks that every piece lies in the bytes.
void check_begins(const std::string& name, const char* side, size_t member, size_t bytes,
                  std::span<const int64_t> begins, std::span<const int64_t> ends) {
    bool inside = begins.size() == ends.size();
    for (size_t i = 0; inside && i < ends.size(); ++i) {
        inside = 0 <= begins[i] && begins[i] <= ends[i] && std::cmp_less_equal(ends[i], bytes);
    }
    if (inside) return;
    throw UsageError(name + ": " + side + " member " + std::to_string(member) +
                     ": every piece must begin and end within the " + std::to_string(bytes) +
                     " bytes, and not end before it begins");
}

/// Without begins, checks that the ends of pieces ascend and that the last one is the end of the
/// bytes.
void check_ends(const std::string& name, const char* side, size_t member, size_t bytes,
                std::span<const int64_t> begins, std::span<const int64_t> ends) {
    if (!begins.empty()) return check_begins(name, side, member, bytes, begins, ends);
    const bool ascending = std::is_sorted(ends.begin(), ends.end());
    const int64_t last = ends.empty() ? 0 : ends.back();
    const bool positive = ends.empty() || ends.front() >= 0;
    if (ascending && positive && last == static_cast<int64_t>(bytes)) return;
    throw UsageError(name + ": " + side + " member " + std::to_string(member) +
                     ": pieces must end in ascending order, the last one after all " +
                     std::to_string(bytes) + " bytes, not after " + std::to_string(last));
}

}  // namespace

int own_member(std::span<const int> ranks, int rank, int world_size) {
    for (const int one : ranks) {
        const bool twice = std::count(ranks.begin(), ranks.end(), one) > 1;
        if (one >= 0 && one < world_size && !twice) continue;
        throw UsageError(
            "tile link: rank " + std::to_string(one) +
            (twice ? " is a member twice"
                   : " does not exist; the world has " + std::to_string(world_size) + " ranks"));
    }
    const int self = member_of(ranks, rank);
    if (self == static_cast<int>(ranks.size())) {
        throw UsageError("tile link: rank " + std::to_string(rank) + " is no member of its team");
    }
    return self;
}

std::vector<int> all_ranks(int world_size) {
    std::vector<int> ranks(static_cast<size_t>(world_size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
}

Channel channel_of(Axis axis) {
    if (axis == Axis::tensor) return Channel::tensor;
    if (axis == Axis::context) return Channel::context;
    if (axis == Axis::expert) return Channel::expert;
    throw UsageError(
        "tile link: axis " + std::string(to_string(axis)) +
        ": devices link tensor, context and expert ranks; for others call open_tile_link()");
}

Channel channel_of(Axis axis, int lane) {
    const Channel first = channel_of(axis);
    if (lane == 0) return first;
    return axis == Axis::expert ? Channel::backward : Channel::forward;
}

std::string text_of(const TileLink::Name& name) {
    std::string text(name.what);
    if (name.layer >= 0) text += ", layer " + std::to_string(name.layer);
    return text;
}

void check_parts(const std::string& name, int self, size_t members,
                 std::span<const TileLink::Outgoing> send,
                 std::span<const TileLink::Incoming> receive) {
    if (send.size() != members || receive.size() != members) {
        throw UsageError(name + ": " + std::to_string(send.size()) + " parts to send and " +
                         std::to_string(receive.size()) + " to receive for " +
                         std::to_string(members) + " members; give one for each");
    }
    for (size_t m = 0; m < members; ++m) {
        check_ends(name, "to", m, send[m].bytes.size(), send[m].begins, send[m].ends);
        check_ends(name, "from", m, receive[m].bytes.size(), receive[m].begins, receive[m].ends);
    }
    const auto& out = send[static_cast<size_t>(self)];
    const auto& in = receive[static_cast<size_t>(self)];
    bool same = out.ends.size() == in.ends.size();
    for (int i = 0; same && std::cmp_less(i, out.ends.size()); ++i) {
        same = piece_of(out, i).size() == piece_of(in, i).size();
    }
    if (!same) {
        throw UsageError(name +
                         ": a member's part for itself must have the same pieces where it is sent "
                         "and received");
    }
}

void check_pieces(const std::string& name, const char* what, int member, int pieces, int most) {
    if (pieces >= 0 && pieces <= most) return;
    throw UsageError(name + ": " + what + " " + std::to_string(pieces) + " pieces of member " +
                     std::to_string(member) + ", which has " + std::to_string(most));
}

std::string piece_text(int rank, const std::string& name, const char* what, int member, int piece,
                       std::span<const int> ranks) {
    return "rank " + std::to_string(rank) + ": " + name + ": " + what + " piece " +
           std::to_string(piece) + " of member " + std::to_string(member) + " (rank " +
           std::to_string(ranks[static_cast<size_t>(member)]) + ")";
}

void check_idle(int rank, const std::string& name, bool broken, const std::string* running) {
    if (broken) {
        throw CommunicationError("rank " + std::to_string(rank) + ": " + name +
                                 ": an earlier operation of the team has failed");
    }
    if (running != nullptr) {
        throw UsageError(name + ": " + *running +
                         " has not finished; a link runs one operation at a time");
    }
}

}  // namespace vocabpipe::tile_link
