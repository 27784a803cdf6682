// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/mesh.hpp"

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>

namespace vocabpipe {

class TileLink;

namespace kernels {
struct Operators;
namespace host {
class Engine;
}
namespace cuda {
class Engine;
}
}  // namespace kernels

/// Arguments of a Context; a Device fills them in (Device::context).
struct ContextOptions {
    int threads = 1;  ///< OpenMP threads of the rank; ranks x threads > cores is very slow
    std::function<void()>
        poll;  ///< progresses communication; called between operators, may be empty
    /// Operators of the device that holds the tensors; null: the host's. Not owned.
    const kernels::Operators* operators = nullptr;
    kernels::cuda::Engine* cuda = nullptr;  ///< needed by CUDA operators; not owned
};

/// Rows that travel into or out of the pass while it runs: boundaries sent in pieces
/// (LowerOptions::pieces), as TileMap::even(rows, 1, pieces) cuts them.
class StreamedRows {
public:
    virtual ~StreamedRows() = default;
    /// Pieces of the pass's input; 1: all of it has arrived.
    [[nodiscard]] virtual int input_pieces() const = 0;
    /// Pieces of the pass's output; 1: it is sent as a whole.
    [[nodiscard]] virtual int output_pieces() const = 0;
    /// Waits until rows [0, end) of the input have arrived; communication advances meanwhile.
    virtual void need(int64_t end) = 0;
    /// Rows [0, end) of the output are final: they are neither written nor moved any more.
    virtual void made(int64_t end) = 0;
};

/// What an operator needs of the rank it runs on. Owned by one rank and used by its thread only.
class Context {
public:
    /// Makes its own engine.
    explicit Context(ContextOptions options);
    ~Context();
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

    /// For passes of the same rank that run in turns with those of this context: the same options
    /// and scratch memory, so that they change between operators only; links and rows are its own.
    [[nodiscard]] std::unique_ptr<Context> of_other_lane() const;

    /// Lets communication advance; long passes call it between operators (Open MPI has no progress
    /// of its own). May run a `combine_softmax` or `ordered_sum` of another microbatch, never a
    /// pass. On a device with streams it also waits until the device has run all but the launches
    /// since the last call: a stream's queue holds about a thousand launches, so a pass makes fewer
    /// than 500 between two calls.
    void poll() {
        if (options_.poll) options_.poll();
    }
    /// The rows of this pass that are streamed; null: none. A module may ignore it: then the
    /// executor waits for all rows before the pass and sends all rows after it. A module that uses
    /// it declares so (StageModule::streams, OutputLayer::streams).
    [[nodiscard]] StreamedRows* streamed() const { return streamed_; }
    /// Sets streamed() for the next pass. Not owned.
    void stream(StreamedRows* rows) { streamed_ = rows; }
    /// Link to the ranks that share the stage (Axis::tensor) or the experts of a layer
    /// (Axis::expert), for what a layer exchanges with them. Null: this rank shares with no other.
    [[nodiscard]] TileLink* link(Axis axis) const { return links_[static_cast<size_t>(axis)]; }
    /// Sets link(axis). Not owned.
    void set_link(Axis axis, TileLink* link) { links_[static_cast<size_t>(axis)] = link; }
    /// Until the next call with 0, operators get parts of tensors of `rows` rows and must give the
    /// bits of one call with all rows. (A GPU chooses its kernels by size.)
    void take_part_of(int64_t rows) { whole_rows_ = rows; }
    /// Rows of the whole tensor of which an operator got `rows` rows (take_part_of()).
    [[nodiscard]] int64_t whole_rows(int64_t rows) const {
        return whole_rows_ > 0 ? whole_rows_ : rows;
    }
    /// OpenMP threads that operators may use.
    [[nodiscard]] int threads() const { return options_.threads; }
    /// The operators of the rank's device (operators.hpp).
    [[nodiscard]] const kernels::Operators& operators() const { return *options_.operators; }
    /// Scratch memory of the host's kernels (kernels/host/engine.hpp).
    [[nodiscard]] kernels::host::Engine& engine() { return *engine_; }
    /// Stream and cuBLASLt handle of the lane that runs (kernels/cuda/engine.hpp). Throws
    /// UsageError where the rank's device is the host.
    [[nodiscard]] kernels::cuda::Engine& cuda();

private:
    Context(ContextOptions options, std::shared_ptr<kernels::host::Engine> engine);

    ContextOptions options_;
    StreamedRows* streamed_ = nullptr;
    std::array<TileLink*, kAxes.size()> links_{};
    int64_t whole_rows_ = 0;
    std::shared_ptr<kernels::host::Engine> engine_;
};

}  // namespace vocabpipe
