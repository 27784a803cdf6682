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

/// What a Context is made with; a Device fills it in (Device::context).
struct ContextOptions {
    int threads = 1;  ///< one OpenMP thread per rank: ranks x threads beyond the cores is a cliff
    std::function<void()>
        poll;  ///< progresses communication; called between operators, may be empty
    /// Where operators run and what their tensors' memory is; null: the host's. Not owned.
    const kernels::Operators* operators = nullptr;
    kernels::cuda::Engine* cuda = nullptr;  ///< needed by CUDA operators; not owned
};

/// Rows on their way into or out of the pass that runs: boundaries of the step that travel by
/// pieces (LowerOptions::pieces), as TileMap::even(rows, 1, pieces) cuts them.
class StreamedRows {
public:
    virtual ~StreamedRows() = default;
    /// Of the pass's input; 1: all of it is there.
    [[nodiscard]] virtual int input_pieces() const = 0;
    /// Of what it makes; 1: nobody takes it by pieces.
    [[nodiscard]] virtual int output_pieces() const = 0;
    /// Returns once rows [0, end) of the input are there. Lets communication advance meanwhile.
    virtual void need(int64_t end) = 0;
    /// Rows [0, end) of the output are as they shall be, and will be neither written nor moved.
    virtual void made(int64_t end) = 0;
};

/// What an operator needs of the rank it runs on. Owned by one rank and used by its thread only.
class Context {
public:
    /// With a oneDNN engine of its own.
    explicit Context(ContextOptions options);
    ~Context();
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

    /// Lets communication advance; long passes call it between operators (Open MPI has no progress
    /// of its own). May run a `combine_softmax` or `ordered_sum` of another microbatch, never a
    /// pass. On a device with streams it also waits until the device is at most one such part of
    /// the pass behind: a stream takes about a thousand launches, so there are to be fewer than 500
    /// between two calls.
    void poll() {
        if (options_.poll) options_.poll();
    }
    /// Null where nothing of the pass is streamed. A module that does not look at it is right: the
    /// executor waits for all rows before its pass, and gives all after it. One that does says so
    /// (StageModule::streams, OutputLayer::streams).
    [[nodiscard]] StreamedRows* streamed() const { return streamed_; }
    /// For the pass that runs next. Not owned.
    void stream(StreamedRows* rows) { streamed_ = rows; }
    /// To the ranks that share the stage (Axis::tensor) or the experts of a layer (Axis::expert),
    /// for what a layer exchanges with them. Null: the rank has that alone.
    [[nodiscard]] TileLink* link(Axis axis) const { return links_[static_cast<size_t>(axis)]; }
    /// From now on. Not owned.
    void set_link(Axis axis, TileLink* link) { links_[static_cast<size_t>(axis)] = link; }
    /// Until it is called with 0: operators get some rows of tensors that have `rows` of them, and
    /// their bits shall be those of all rows at once. A GPU's choices depend on sizes.
    void take_part_of(int64_t rows) { whole_rows_ = rows; }
    /// Of the tensors of which an operator that is given `rows` has a part, or all.
    [[nodiscard]] int64_t whole_rows(int64_t rows) const {
        return whole_rows_ > 0 ? whole_rows_ : rows;
    }
    /// OpenMP threads that operators may use.
    [[nodiscard]] int threads() const { return options_.threads; }
    /// The operators of the rank's device (operators.hpp).
    [[nodiscard]] const kernels::Operators& operators() const { return *options_.operators; }
    /// oneDNN engine and primitive cache (kernels/host/engine.hpp).
    [[nodiscard]] kernels::host::Engine& engine() { return *engine_; }
    /// Stream and cuBLASLt handle of the lane that runs (kernels/cuda/engine.hpp). Throws
    /// UsageError where the rank's device is the host.
    [[nodiscard]] kernels::cuda::Engine& cuda();

private:
    ContextOptions options_;
    StreamedRows* streamed_ = nullptr;
    std::array<TileLink*, kAxes.size()> links_{};
    int64_t whole_rows_ = 0;
    std::unique_ptr<kernels::host::Engine> engine_;
};

}  // namespace vocabpipe
