// SPDX-License-Identifier: Apache-2.0
// What the tests of faults put into the way of a rank and of its streams.
#pragma once

#include "src/runtime/device/cuda/handles.hpp"
#include "vocabpipe/modules.hpp"

#include <atomic>
#include <functional>
#include <thread>
#include <utility>

namespace vocabpipe::testing {

/// Nothing that is enqueued on the stream from now on begins before `let_go`, which must stay.
inline void hold_up(cudaStream_t stream, std::atomic<bool>& let_go) {
    const auto wait = [](void* flag) {
        while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
    };
    cuda::check(cudaLaunchHostFunc(stream, wait, &let_go), "cudaLaunchHostFunc");
}

/// A stage of a rank that does something else before a forward.
class InterruptedStage final : public StageModule {
public:
    InterruptedStage(StageModule& stage, std::function<void(const Microbatch&)> interrupt)
        : InterruptedStage(
              stage, [does = std::move(interrupt)](Context&, const Microbatch& m) { does(m); }) {}
    InterruptedStage(StageModule& stage, std::function<void(Context&, const Microbatch&)> interrupt)
        : stage_(stage), interrupt_(std::move(interrupt)) {}
    [[nodiscard]] bool streams() const override { return stage_.streams(); }
    [[nodiscard]] StageBytes bytes() const override { return stage_.bytes(); }
    [[nodiscard]] std::span<Parameter> parameters() override { return stage_.parameters(); }
    void forward(Context& ctx, const Microbatch& microbatch, ConstTensor x, Tensor y,
                 Activations activations, Bytes workspace) override {
        interrupt_(ctx, microbatch);
        stage_.forward(ctx, microbatch, x, y, activations, workspace);
    }
    void recompute(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                   Activations activations, Bytes workspace) override {
        stage_.recompute(ctx, microbatch, x, activations, workspace);
    }
    void backward(Context& ctx, const Microbatch& microbatch, ConstTensor dy, ConstTensor x,
                  Activations activations, Tensor dx, Bytes workspace, bool accumulate) override {
        stage_.backward(ctx, microbatch, dy, x, activations, dx, workspace, accumulate);
    }
    void backward_input(Context& ctx, const Microbatch& microbatch, ConstTensor dy, ConstTensor x,
                        Activations activations, Tensor dx, Bytes for_weight,
                        Bytes workspace) override {
        stage_.backward_input(ctx, microbatch, dy, x, activations, dx, for_weight, workspace);
    }
    void backward_weight(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                         Activations activations, Bytes for_weight, Bytes workspace,
                         bool accumulate) override {
        stage_.backward_weight(ctx, microbatch, x, activations, for_weight, workspace, accumulate);
    }

private:
    StageModule& stage_;
    std::function<void(Context&, const Microbatch&)> interrupt_;
};

}  // namespace vocabpipe::testing
