// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vocabpipe::kernels::host {

class Engine {
public:
    explicit Engine(int threads) : threads_(threads) {}
    [[nodiscard]] int threads() const { return threads_; }

private:
    int threads_;
};

}  // namespace vocabpipe::kernels::host
