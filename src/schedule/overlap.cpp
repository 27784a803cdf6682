// SPDX-License-Identifier: Apache-2.0
// Each operation is replayed piece by piece in virtual time, with the times at which links and
// computing are free.
#include "vocabpipe/overlap.hpp"

#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace vocabpipe {

namespace {

/// Points in time in ns, [rank][member whose rows they are][piece].
using PieceTimes = std::vector<std::vector<std::vector<double>>>;

class VirtualTeam {
public:
    VirtualTeam(const TileMap& map, int64_t compute_ns, const Link& link,
                const OverlapOptions& options)
        : map_(map), options_(options), link_(link), members_(map.members()) {
        const auto rows = static_cast<double>(map.rows());
        ns_per_row_ = rows > 0 ? static_cast<double>(compute_ns) / rows : 0;
    }

    /// The member whose rows a rank multiplies in turn i.
    [[nodiscard]] int turn(OverlapOp op, int rank, int i) const {
        if (options_.order == ComputeOrder::natural) return i;
        return op == OverlapOp::gemm_reduce_scatter ? (rank + 1 + i) % members_
                                                    : (rank - i + members_) % members_;
    }
    /// Time of one product.
    [[nodiscard]] double compute(RowRange rows) const {
        return static_cast<double>(options_.piece_ns) +
               static_cast<double>(rows.size()) * ns_per_row_;
    }
    [[nodiscard]] double occupied(int member, int piece) const {
        return static_cast<double>(link_.piece_ns) + bytes_ns(map_.rows(member, piece).size());
    }
    [[nodiscard]] double bytes_ns(int64_t rows) const {
        return static_cast<double>(rows) * static_cast<double>(options_.row_bytes) /
               link_.bytes_per_ns;
    }

    /// The order of the steps (o, piece) from rank to rank + o: all pieces of one o before the
    /// next, or all o of one piece.
    [[nodiscard]] std::vector<std::pair<int, int>> steps(bool by_piece) const {
        int most = 0;
        for (int member = 0; member < members_; ++member) {
            most = std::max(most, map_.pieces(member));
        }
        std::vector<std::pair<int, int>> all;
        for (int o = 1; o < members_; ++o) {
            for (int piece = 0; piece < most; ++piece) all.emplace_back(o, piece);
        }
        if (by_piece) {
            std::ranges::stable_sort(all, {}, [](const auto& step) { return step.second; });
        }
        return all;
    }

    /// Arrival times of all pieces: result[rank][sender][piece]. `ready`: when rank `from` has the
    /// piece for `to`; `whose`: the member whose rows travel. A rank sends and receives one piece
    /// at a time, in the order of steps().
    template <typename Ready, typename Whose>
    PieceTimes arrivals(Ready&& ready, Whose&& whose, bool by_piece = false) const {
        const auto ranks = static_cast<size_t>(members_);
        PieceTimes arrival(ranks, std::vector<std::vector<double>>(ranks));
        std::vector<double> out(ranks, 0), in(ranks, 0);  // when the links are free
        for (const auto& [o, piece] : steps(by_piece)) {
            for (int from = 0; from < members_; ++from) {
                const int to = (from + o) % members_;
                const int member = whose(from, to);
                if (piece >= map_.pieces(member)) continue;
                double& leaves = out[static_cast<size_t>(from)];
                double& enters = in[static_cast<size_t>(to)];
                const double begin = std::max({leaves, enters, ready(from, to, piece)});
                leaves = enters = begin + occupied(member, piece);
                arrival[static_cast<size_t>(to)][static_cast<size_t>(from)].push_back(
                    enters + static_cast<double>(link_.latency_ns));
            }
        }
        return arrival;
    }

    /// All rows go to all ranks: when each rank has multiplied all.
    [[nodiscard]] std::vector<double> all_gather_gemm() const {
        const PieceTimes arrival =
            arrivals([](int, int, int) { return 0.0; }, [](int from, int /*to*/) { return from; });
        std::vector<double> end;
        for (int rank = 0; rank < members_; ++rank) {
            double now = 0;
            for (int i = 0; i < members_; ++i) {
                const int member = turn(OverlapOp::all_gather_gemm, rank, i);
                if (member == rank) {
                    if (map_.pieces(rank) > 0) now += compute(map_.rows(rank));
                    continue;
                }
                const auto& arrived =
                    arrival[static_cast<size_t>(rank)][static_cast<size_t>(member)];
                for (size_t piece = 0; piece < arrived.size();) {
                    now = std::max(now, arrived[piece]);
                    size_t end = piece + 1;  // one product of all that has arrived
                    while (end < arrived.size() && arrived[end] <= now) ++end;
                    now +=
                        compute(map_.rows(member, static_cast<int>(piece), static_cast<int>(end)));
                    piece = end;
                }
            }
            end.push_back(now);
        }
        return end;
    }

    /// Products go to the member of their rows: when each rank has multiplied all and received its
    /// own.
    [[nodiscard]] std::vector<double> gemm_reduce_scatter() const {
        const auto ranks = static_cast<size_t>(members_);
        PieceTimes done(ranks, std::vector<std::vector<double>>(ranks));
        std::vector<double> end;
        for (int rank = 0; rank < members_; ++rank) {
            double now = 0;
            for (int i = 0; i < members_; ++i) {
                const int member = turn(OverlapOp::gemm_reduce_scatter, rank, i);
                if (member == rank) {
                    if (map_.pieces(rank) > 0) now += compute(map_.rows(rank));
                    continue;
                }
                map_.each_product(member, [&](int first, int last) {
                    now += compute(map_.rows(member, first, last));
                    done[static_cast<size_t>(rank)][static_cast<size_t>(member)].resize(
                        static_cast<size_t>(last), now);
                });
            }
            end.push_back(now);
        }
        const PieceTimes arrival = arrivals(
            [&](int from, int to, int piece) {
                return done[static_cast<size_t>(from)][static_cast<size_t>(to)]
                           [static_cast<size_t>(piece)];
            },
            [](int /*from*/, int to) { return to; });
        for (size_t rank = 0; rank < ranks; ++rank) {
            for (const std::vector<double>& from : arrival[rank]) {
                if (!from.empty()) end[rank] = std::max(end[rank], from.back());
            }
        }
        return end;
    }

    /// Panels of all rows: when each rank has multiplied all and received its own.
    [[nodiscard]] std::vector<double> gemm_combine() const {
        std::vector<double> done;  // the same on all ranks
        double now = 0;
        for (const auto& [o, panel] : steps(true)) {
            if (o > 1) continue;
            now += static_cast<double>(options_.piece_ns);
            for (int member = 0; member < members_; ++member) {
                if (panel >= map_.pieces(member)) continue;
                now += static_cast<double>(map_.rows(member, panel).size()) * ns_per_row_;
            }
            done.push_back(now);
        }
        if (members_ == 1) now = static_cast<double>(map_.rows()) * ns_per_row_;
        const PieceTimes arrival =
            arrivals([&](int, int, int panel) { return done[static_cast<size_t>(panel)]; },
                     [](int /*from*/, int to) { return to; }, true);
        std::vector<double> end;
        for (const auto& of_rank : arrival) {
            end.push_back(now);
            for (const std::vector<double>& from : of_rank) {
                if (!from.empty()) end.back() = std::max(end.back(), from.back());
            }
        }
        return end;
    }

    /// Panels of all members: when each rank has attended to all.
    [[nodiscard]] std::vector<double> gather_attention() const {
        const PieceTimes arrival = arrivals([](int, int, int) { return 0.0; },
                                            [](int from, int /*to*/) { return from; }, true);
        std::vector<double> end;
        for (int rank = 0; rank < members_; ++rank) {
            double now = 0;
            for (int panel = 0;; ++panel) {
                int64_t rows = 0;
                bool some = false;
                for (int member = 0; member < members_; ++member) {
                    if (panel >= map_.pieces(member)) continue;
                    some = true;
                    rows += map_.rows(member, panel).size();
                    if (member == rank) continue;
                    now = std::max(now, arrival[static_cast<size_t>(rank)][static_cast<size_t>(
                                            member)][static_cast<size_t>(panel)]);
                }
                if (!some) break;
                now += static_cast<double>(options_.piece_ns) +
                       static_cast<double>(rows) * ns_per_row_;
            }
            end.push_back(now);
        }
        return end;
    }

    /// End of streaming one tensor's pieces: made (a hop) or present, sent if there is a link,
    /// used.
    [[nodiscard]] double stream(bool made, bool linked) const {
        double maker = 0, link = 0, user = 0;
        for (int piece = 0; piece < map_.pieces(0); ++piece) {
            const double product = compute(map_.rows(0, piece));
            if (made) maker += product;
            link = std::max(link, maker) + (linked ? occupied(0, piece) : 0);
            const double seen = link + (linked ? static_cast<double>(link_.latency_ns) : 0);
            user = std::max(user, seen) + product;
        }
        return user;
    }

    /// Time of the link for the rows that a rank receives, one message from each member; for a
    /// stream all rows.
    [[nodiscard]] double link_time(OverlapOp op, int rank) const {
        const auto message = [&](int64_t rows) {
            return rows == 0 ? 0 : static_cast<double>(link_.piece_ns) + bytes_ns(rows);
        };
        double sum = 0;
        if (op == OverlapOp::stream_in || op == OverlapOp::hop) {
            sum = message(map_.rows());
        } else {
            for (int member = 0; member < members_; ++member) {
                if (member == rank) continue;
                const bool own =
                    op == OverlapOp::gemm_reduce_scatter || op == OverlapOp::gemm_combine;
                sum += message(map_.rows(own ? rank : member).size());
            }
        }
        return sum > 0 ? sum + static_cast<double>(link_.latency_ns) : 0;
    }

private:
    const TileMap& map_;
    const OverlapOptions& options_;
    const Link& link_;
    int members_;
    double ns_per_row_ = 0;
};

void check_overlap(OverlapOp op, const TileMap& map, int64_t compute_ns, const Link& link,
                   const OverlapOptions& options) {
    if (compute_ns < 0 || link.latency_ns < 0 || link.piece_ns < 0 || options.piece_ns < 0 ||
        options.row_bytes < 0) {
        throw UsageError("overlap: times and sizes must be at least 0");
    }
    if (!(link.bytes_per_ns > 0)) {
        throw UsageError("overlap: a link of " + std::to_string(link.bytes_per_ns) +
                         " bytes per ns; must be above 0");
    }
    const bool stream = op == OverlapOp::stream_in || op == OverlapOp::hop;
    if (stream && map.members() != 1) {
        throw UsageError("overlap: a stream has one member, not " + std::to_string(map.members()));
    }
}

}  // namespace

std::string_view to_string(OverlapOp op) {
    switch (op) {
        case OverlapOp::all_gather_gemm:
            return "all_gather_gemm";
        case OverlapOp::gemm_reduce_scatter:
            return "gemm_reduce_scatter";
        case OverlapOp::stream_in:
            return "stream_in";
        case OverlapOp::hop:
            return "hop";
        case OverlapOp::dispatch_gemm:
            return "dispatch_gemm";
        case OverlapOp::gemm_combine:
            return "gemm_combine";
        case OverlapOp::gather_attention:
            return "gather_attention";
    }
    return "?";
}

std::vector<OverlapTimes> overlap_of_ranks(OverlapOp op, const TileMap& map, int64_t compute_ns,
                                           const Link& link, const OverlapOptions& options) {
    check_overlap(op, map, compute_ns, link, options);
    const VirtualTeam team(map, compute_ns, link, options);
    const auto whole = static_cast<double>(map.rows() > 0 ? compute_ns : 0);
    double computing = whole;
    double serial = whole;  // computing in the blocking form
    std::vector<double> end;
    switch (op) {
        case OverlapOp::all_gather_gemm:
        case OverlapOp::dispatch_gemm:  // other tensors, the same steps
            end = team.all_gather_gemm();
            break;
        case OverlapOp::gemm_combine:
            end = team.gemm_combine();
            break;
        case OverlapOp::gather_attention:
            end = team.gather_attention();
            break;
        case OverlapOp::gemm_reduce_scatter:
            end = team.gemm_reduce_scatter();
            break;
        case OverlapOp::stream_in:
            end = {team.stream(false, true)};
            break;
        case OverlapOp::hop:
            end = {team.stream(true, true)};
            computing = team.stream(true, false);
            serial = 2 * whole;
            break;
    }
    const auto rounded = [](double ns) { return static_cast<int64_t>(std::llround(ns)); };
    std::vector<OverlapTimes> result;
    for (int rank = 0; rank < map.members(); ++rank) {
        const double link_ns = team.link_time(op, rank);
        result.push_back({.compute_ns = rounded(computing),
                          .link_ns = rounded(link_ns),
                          .blocking_ns = rounded(serial + link_ns),
                          .overlapped_ns = rounded(end[static_cast<size_t>(rank)])});
    }
    return result;
}

OverlapTimes overlap(OverlapOp op, const TileMap& map, int64_t compute_ns, const Link& link,
                     const OverlapOptions& options) {
    const std::vector<OverlapTimes> ranks = overlap_of_ranks(op, map, compute_ns, link, options);
    return *std::max_element(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) {
        return a.overlapped_ns < b.overlapped_ns;
    });
}

PieceChoice choose_pieces(const OverlapShape& shape, const Link& link,
                          const OverlapOptions& options, std::span<const int> candidates) {
    if (candidates.empty()) throw UsageError("choose_pieces: no candidates; give at least one");
    std::vector<int> ascending(candidates.begin(), candidates.end());
    std::sort(ascending.begin(), ascending.end());
    PieceChoice best{.pieces = 0};
    for (const int pieces : ascending) {
        const TileMap map = TileMap::even(shape.rows, shape.members, pieces);
        const OverlapTimes times = overlap(shape.op, map, shape.compute_ns, link, options);
        if (best.pieces == 0 || times.overlapped_ns < best.times.overlapped_ns) {
            best = {pieces, times};
        }
    }
    return best;
}

PieceChoice choose_tiles(const TileShape& shape, const TileRates& rates) {
    if (!(rates.flops_per_ns > 0)) {
        throw UsageError("choose_tiles: a rate of " + std::to_string(rates.flops_per_ns) +
                         " FLOPs per ns; must be above 0");
    }
    const double flops = 2.0 * static_cast<double>(shape.rows) * static_cast<double>(shape.inner) *
                         static_cast<double>(shape.columns);
    const bool inputs = shape.op == OverlapOp::all_gather_gemm ||
                        shape.op == OverlapOp::stream_in || shape.op == OverlapOp::dispatch_gemm;
    constexpr std::array kCandidates{1, 2, 4, 8, 16, 32, 64};
    return choose_pieces(
        {.op = shape.op,
         .rows = shape.rows,
         .members = shape.members,
         .compute_ns = static_cast<int64_t>(std::llround(flops / rates.flops_per_ns))},
        rates.link,
        {.row_bytes = (inputs ? shape.inner : shape.columns) * shape.element_bytes,
         .piece_ns = rates.piece_ns},
        kCandidates);
}

}  // namespace vocabpipe
