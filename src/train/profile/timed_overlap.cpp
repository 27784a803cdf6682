// SPDX-License-Identifier: Apache-2.0
#include "src/train/profile/timed_overlap.hpp"

#include "src/model/blocks/row_pieces.hpp"
#include "src/model/views.hpp"
#include "src/train/profile/timed_attention.hpp"
#include "src/train/profile/timed_experts.hpp"
#include "src/train/profile/timed_team.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/operators.hpp"
#include "vocabpipe/tensor.hpp"

#include <limits>
#include <span>
#include <vector>

namespace vocabpipe {

namespace {

using Floats = std::vector<float>;

constexpr int kRoot = 0;  // of a stream

/// A dense fp32 matrix in the memory of a device.
class DeviceMatrix {
public:
    DeviceMatrix(Device& device, int64_t rows, int64_t cols)
        : device_(device),
          memory_(device.allocate(static_cast<uint64_t>(rows * cols) * sizeof(float),
                                  "a matrix to measure with")),
          view_(memory_.data(), rows, cols, DType::fp32) {}

    [[nodiscard]] Tensor rows(RowRange range) const {
        return view_.row_range(range.first, range.size());
    }
    [[nodiscard]] Tensor all() const { return view_; }
    [[nodiscard]] Bytes bytes(RowRange range) const { return bytes_of<std::byte>(rows(range)); }
    void write(const Floats& values) {
        device_.upload(std::as_bytes(std::span(values)), memory_.data());
    }
    void poison(RowRange range) {
        const Floats nan(static_cast<size_t>(range.size() * view_.cols),
                         std::numeric_limits<float>::quiet_NaN());
        device_.upload(std::as_bytes(std::span(nan)), bytes(range).data());
    }
    [[nodiscard]] Floats read() const {
        Floats values(static_cast<size_t>(view_.size()));
        device_.download(memory_.data(), std::as_writable_bytes(std::span(values)));
        return values;
    }

private:
    Device& device_;
    DeviceMemory memory_;
    Tensor view_;
};

/// The operation on one rank, by pieces of a map.
class Team {
public:
    Team(Communicator& world, Device& device, const OverlapCase& c)
        : world_(world),
          case_(c),
          members_(c.op == OverlapOp::stream_in ? 1 : world.size()),
          context_(device.context(1, [this] { poll(); })),
          weight_(device, c.columns, c.inner),
          input_(device, c.rows, c.inner),
          product_(device, c.rows, c.columns),
          partials_(device, scatters() ? world.size() * own().size() : 0, c.columns),
          folded_(device, scatters() ? own().size() : 0, c.columns) {
        weight_.write(random_floats(c.columns * c.inner, world.rank()));
        input_.write(random_floats(c.rows * c.inner, 1000 + world.rank()));
    }

    void use(TileLink& link) { link_ = &link; }
    [[nodiscard]] TileMap map(int pieces) const {
        return TileMap::even(case_.rows, members_, pieces);
    }
    /// Bytes that this rank receives.
    [[nodiscard]] int64_t received_bytes() const {
        if (case_.op == OverlapOp::stream_in) {
            return world_.rank() == kRoot ? 0 : case_.rows * row_bytes();
        }
        return row_bytes() *
               (scatters() ? own().size() * (world_.size() - 1) : case_.rows - own().size());
    }

    /// All rows at once.
    void compute() { multiply({0, case_.rows}); }
    /// The messages without products.
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
        const PartOfRows part(context_, case_.rows);
        const TileMap pieces = map(case_.pieces);
        TileLink::Operation operation = start(pieces);
        if (scatters()) {
            for (int i = 1; i < world_.size(); ++i) {
                const int to = link_->to(i);
                pieces.each_product(to, [&](int first, int end) {
                    multiply(pieces.rows(to, first, end));
                    operation.release(to, end);
                });
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
                const int end = stream ? piece + 1 : there;  // pieces that are used together
                multiply(pieces.rows(owner, piece, end));
                piece = end;
            }
        }
        operation.finish();
    }

    [[nodiscard]] Floats result() const { return scatters() ? folded_.read() : product_.read(); }
    /// Overwrites the rows that blocking has left, so that overlapped finds none ready.
    void poison() {
        if (!scatters()) {
            const bool stream = case_.op == OverlapOp::stream_in;
            const RowRange kept =
                stream ? RowRange{0, world_.rank() == kRoot ? case_.rows : 0} : own();
            input_.poison({0, kept.first});
            input_.poison({kept.end, case_.rows});
        } else {
            partials_.poison({0, partials_.all().rows});
            folded_.poison({0, folded_.all().rows});
        }
        product_.poison({0, case_.rows});
    }

private:
    [[nodiscard]] bool scatters() const { return case_.op == OverlapOp::gemm_reduce_scatter; }
    [[nodiscard]] RowRange own() const { return map(1).rows(world_.rank()); }
    [[nodiscard]] int64_t row_bytes() const {
        return int64_t{sizeof(float)} * (scatters() ? case_.columns : case_.inner);
    }
    void multiply(RowRange rows) {
        context_.operators().linear_forward(context_, input_.rows(rows), weight_.all(), {},
                                            product_.rows(rows));
    }
    void poll() {
        if (link_ != nullptr) link_->poll();
    }
    /// Starts an operation: receives are posted, nothing is released.
    TileLink::Operation start(const TileMap& pieces) {
        const int rank = world_.rank();
        const auto members = static_cast<size_t>(world_.size());
        ends_.assign(members, {});
        std::vector<TileLink::Outgoing> send(members);
        std::vector<TileLink::Incoming> receive(members);
        own_ends_ = case_.op == OverlapOp::stream_in ? std::vector<int64_t>()
                                                     : pieces.ends(rank, row_bytes());
        for (size_t m = 0; m < members; ++m) {
            const int member = static_cast<int>(m);
            if (case_.op == OverlapOp::stream_in) {
                ends_[m] = pieces.ends(0, row_bytes());
                const Bytes all = input_.bytes({0, case_.rows});
                if (rank == kRoot) send[m] = {.bytes = all, .ends = ends_[m]};
                if (member == kRoot) receive[m] = {.bytes = all, .ends = ends_[m]};
                continue;
            }
            ends_[m] = pieces.ends(member, row_bytes());
            if (scatters()) {
                const int64_t count = own().size();
                send[m] = {.bytes = product_.bytes(pieces.rows(member)), .ends = ends_[m]};
                receive[m] = {.bytes = partials_.bytes({member * count, (member + 1) * count}),
                              .ends = own_ends_};
            } else {
                send[m] = {.bytes = input_.bytes(pieces.rows(rank)), .ends = own_ends_};
                receive[m] = {.bytes = input_.bytes(pieces.rows(member)), .ends = ends_[m]};
            }
        }
        return link_->all_to_all(send, receive, {to_string(case_.op)});
    }
    /// Releases the rows that are ready from the start.
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
    /// Adds up in the order of members, not of arrival.
    void fold() {
        context_.operators().fold_partials(context_, partials_.all(), world_.size(), {}, {},
                                           folded_.all());
    }

    Communicator& world_;
    TileLink* link_ = nullptr;
    OverlapCase case_;
    int members_;
    Context context_;
    DeviceMatrix weight_, input_, product_;
    DeviceMatrix partials_;  ///< of a reduce-scatter's own rows, by member
    DeviceMatrix folded_;
    std::vector<std::vector<int64_t>> ends_;  ///< of each member's pieces
    std::vector<int64_t> own_ends_;
};

}  // namespace

OverlapTiming time_overlap(Communicator& world, Device& device, TileLink& link,
                           const OverlapCase& c) {
    if (is_of_experts(c.op)) return time_experts(world, device, link, c);
    if (c.op == OverlapOp::gather_attention) return time_attention(world, device, link, c);
    return time_team<Team>(world, device, link, c);
}

}  // namespace vocabpipe
