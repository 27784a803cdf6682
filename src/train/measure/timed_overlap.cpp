// SPDX-License-Identifier: Apache-2.0
#include "src/train/measure/timed_overlap.hpp"

#include "kernels/host/gemm.hpp"
#include "src/runtime/tile_link/host.hpp"
#include "src/train/measure/timed_experts.hpp"
#include "src/train/measure/timed_team.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

namespace vocabpipe {

namespace {

using Floats = std::vector<float>;

constexpr int kRoot = 0;  // of a stream

/// The operation on one rank, by pieces of a map.
class Team {
public:
    Team(Communicator& world, const OverlapCase& c)
        : world_(world),
          case_(c),
          members_(c.op == OverlapOp::stream_in ? 1 : world.size()),
          context_({.threads = 1, .poll = [this] { poll(); }}),
          weight_(random_floats(c.columns * c.inner, world.rank())),
          input_(random_floats(c.rows * c.inner, 1000 + world.rank())),
          product_(static_cast<size_t>(c.rows * c.columns)) {
        if (c.op == OverlapOp::gemm_reduce_scatter) {
            const int64_t own = map(1).rows(world.rank()).size();
            partials_.assign(static_cast<size_t>(world.size()),
                             Floats(static_cast<size_t>(own * c.columns)));
        }
    }

    void set_transport(Transport& transport) {
        std::vector<int> everyone(static_cast<size_t>(world_.size()));
        std::iota(everyone.begin(), everyone.end(), 0);
        wait_ = world_.wait_options();
        link_ = make_host_tile_link(transport, wait_, {.ranks = everyone, .poll = {}});
    }
    [[nodiscard]] TileMap map(int pieces) const {
        return TileMap::even(case_.rows, members_, pieces);
    }
    /// Bytes that this rank receives.
    [[nodiscard]] int64_t received_bytes() const {
        const TileMap whole = map(1);
        if (case_.op == OverlapOp::stream_in) {
            return world_.rank() == kRoot ? 0 : whole.rows() * row_bytes();
        }
        const int64_t own = whole.rows(world_.rank()).size();
        return row_bytes() * (scatters() ? own * (world_.size() - 1) : whole.rows() - own);
    }

    /// All rows at once.
    void compute() { multiply({0, case_.rows}); }
    /// The messages alone.
    void exchange() {
        const TileMap whole = map(1);
        TileLink::Operation operation = start(whole);
        release_all(operation, whole);
        operation.finish();
    }
    void blocking() {
        if (scatters()) {
            compute();
            exchange();
            fold();
        } else {
            exchange();
            compute();
        }
    }
    void overlapped() {
        const TileMap pieces = map(case_.pieces);
        TileLink::Operation operation = start(pieces);
        if (scatters()) {
            for (int i = 1; i < world_.size(); ++i) {
                const int to = link_->to(i);
                for (int piece = 0; piece < pieces.pieces(to); ++piece) {
                    multiply(pieces.rows(to, piece));
                    operation.release(to, piece + 1);
                }
            }
            multiply(pieces.rows(world_.rank()));
            operation.release(world_.rank(), pieces.pieces(world_.rank()));
            operation.finish();
            fold();
            return;
        }
        release_all(operation, pieces);
        for (int i = 0; i < members_; ++i) {  // own rows first
            const bool stream = case_.op == OverlapOp::stream_in;
            const int from = stream ? kRoot : link_->from(i);
            const int owner = stream ? 0 : from;
            for (int piece = 0; piece < pieces.pieces(owner);) {
                const int there = operation.wait(from, piece + 1);
                const int end = stream ? piece + 1 : there;  // as passes use them
                multiply(pieces.rows(owner, piece, end));
                piece = end;
            }
        }
        operation.finish();
    }

    [[nodiscard]] const Floats& result() const { return scatters() ? folded_ : product_; }
    /// Forgets what blocking has left, so that overlapped finds nothing ready.
    void poison() {
        if (!scatters()) {
            const RowRange own = case_.op == OverlapOp::stream_in
                                     ? RowRange{0, world_.rank() == kRoot ? case_.rows : 0}
                                     : map(1).rows(world_.rank());
            for (int64_t row = 0; row < case_.rows; ++row) {
                if (row >= own.first && row < own.end) continue;
                const auto begin = input_.begin() + row * case_.inner;
                std::fill(begin, begin + case_.inner, std::numeric_limits<float>::quiet_NaN());
            }
        }
        std::fill(product_.begin(), product_.end(), std::numeric_limits<float>::quiet_NaN());
        std::fill(folded_.begin(), folded_.end(), std::numeric_limits<float>::quiet_NaN());
        for (Floats& partial : partials_) {
            std::fill(partial.begin(), partial.end(), std::numeric_limits<float>::quiet_NaN());
        }
    }

private:
    [[nodiscard]] bool scatters() const { return case_.op == OverlapOp::gemm_reduce_scatter; }
    [[nodiscard]] int64_t row_bytes() const {
        return int64_t{sizeof(float)} * (scatters() ? case_.columns : case_.inner);
    }
    void poll() {
        if (link_) link_->poll();
    }
    void multiply(RowRange rows) {
        const ConstTensor x(input_.data() + rows.first * case_.inner, rows.size(), case_.inner,
                            DType::fp32);
        const ConstTensor w(weight_.data(), case_.columns, case_.inner, DType::fp32);
        const Tensor y(product_.data() + rows.first * case_.columns, rows.size(), case_.columns,
                       DType::fp32);
        kernels::host::gemm(context_, x, false, w, true, y, false);
    }
    /// Receives are posted; nothing has been released.
    TileLink::Operation start(const TileMap& pieces) {
        const int rank = world_.rank();
        const auto members = static_cast<size_t>(world_.size());
        ends_.assign(members, {});
        std::vector<TileLink::Outgoing> send(members);
        std::vector<TileLink::Incoming> receive(members);
        const auto rows_of = [&](Floats& all, RowRange rows, int64_t width) {
            return std::as_writable_bytes(std::span(all).subspan(
                static_cast<size_t>(rows.first * width), static_cast<size_t>(rows.size() * width)));
        };
        for (size_t m = 0; m < members; ++m) {
            const int member = static_cast<int>(m);
            if (case_.op == OverlapOp::stream_in) {
                ends_[m] = pieces.ends(0, row_bytes());
                const auto all = std::as_writable_bytes(std::span(input_));
                if (rank == kRoot) send[m] = {.bytes = all, .ends = ends_[m]};
                if (member == kRoot) receive[m] = {.bytes = all, .ends = ends_[m]};
            } else if (scatters()) {
                ends_[m] = pieces.ends(member, row_bytes());
                send[m] = {.bytes = rows_of(product_, pieces.rows(member), case_.columns),
                           .ends = ends_[m]};
            } else {
                ends_[m] = pieces.ends(member, row_bytes());
                receive[m] = {.bytes = rows_of(input_, pieces.rows(member), case_.inner),
                              .ends = ends_[m]};
            }
        }
        own_ends_ = case_.op == OverlapOp::stream_in ? std::vector<int64_t>()
                                                     : pieces.ends(rank, row_bytes());
        for (size_t m = 0; m < members && case_.op != OverlapOp::stream_in; ++m) {
            if (scatters()) {
                receive[m] = {.bytes = std::as_writable_bytes(std::span(partials_[m])),
                              .ends = own_ends_};
            } else {
                send[m] = {.bytes = rows_of(input_, pieces.rows(rank), case_.inner),
                           .ends = own_ends_};
            }
        }
        return link_->all_to_all(send, receive, {to_string(case_.op)});
    }
    /// Rows that are there from the start.
    void release_all(TileLink::Operation& operation, const TileMap& pieces) {
        for (int i = 0; i < world_.size(); ++i) {
            const int to = link_->to(i);
            if (case_.op == OverlapOp::stream_in) {
                if (world_.rank() == kRoot) operation.release(to, pieces.pieces(0));
            } else {
                operation.release(to, pieces.pieces(scatters() ? to : world_.rank()));
            }
        }
    }
    /// In the order of members, whoever came first.
    void fold() {
        folded_ = partials_.front();
        for (size_t m = 1; m < partials_.size(); ++m) {
            for (size_t i = 0; i < folded_.size(); ++i) folded_[i] += partials_[m][i];
        }
    }

    Communicator& world_;
    OverlapCase case_;
    int members_;
    std::unique_ptr<TileLink> link_;
    WaitOptions wait_;
    Context context_;
    Floats weight_, input_, product_;
    std::vector<Floats> partials_;  ///< a reduce-scatter's own rows, by member
    Floats folded_;
    std::vector<std::vector<int64_t>> ends_;  ///< of the pieces of members
    std::vector<int64_t> own_ends_;
};

}  // namespace

OverlapTiming time_overlap(Communicator& world, const OverlapCase& c) {
    const bool of_experts = c.op == OverlapOp::dispatch_gemm || c.op == OverlapOp::gemm_combine;
    return of_experts ? time_experts(world, c) : time_team<Team>(world, c);
}

}  // namespace vocabpipe
