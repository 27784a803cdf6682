// SPDX-License-Identifier: Apache-2.0
#include "src/tool/launch/run_signals.hpp"

#include "kernels/host/gemm.hpp"
#include "tests/kernels/matrix.hpp"
#include "vocabpipe/context.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

namespace vocabpipe {
namespace {

using kernels::test::Matrix;

TEST(RunSignals, ThatArriveAllTheTimeChangeNoProduct) {
    install_run_signals();
    EXPECT_FALSE(stop_requested());
    std::atomic<bool> over = false;
    std::thread sender([&] {
        while (!over) {
            kill(getpid(), SIGUSR1);
            std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
    });
    Context ctx({.threads = 1, .poll = {}});
    const auto a = Matrix::random(48, 512, DType::fp32, 1);
    const auto b = Matrix::random(256, 512, DType::fp32, 2);
    Matrix first(48, 256, DType::fp32), again(48, 256, DType::fp32);
    kernels::host::gemm(ctx, a, false, b, true, first, false);
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(500)) {
        kernels::host::gemm(ctx, a, false, b, true, again, false);
        ASSERT_TRUE(again.same_bits(first));
    }
    over = true;
    sender.join();
    EXPECT_TRUE(stop_requested());
    EXPECT_EQ(ending_signal(), 0);
}

}  // namespace
}  // namespace vocabpipe
