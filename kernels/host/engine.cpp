// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/engine.hpp"

#include <omp.h>

#include <algorithm>
#include <new>

#include "kernels/host/avx512.hpp"
#include "kernels/host/engine_state.hpp"

namespace vocabpipe::kernels::host {

namespace {
constexpr std::align_val_t kAlignment{64};
}

std::byte* GrowingBuffer::at_least(int64_t bytes) {
    if (bytes > bytes_) {
        data_.reset();
        bytes_ = 0;
        data_.reset(
            static_cast<std::byte*>(::operator new(static_cast<size_t>(bytes), kAlignment)));
        bytes_ = bytes;
    }
    return data_.get();
}

void GrowingBuffer::Free::operator()(std::byte* data) const {
    ::operator delete(data, kAlignment);
}

Engine::State::State(int threads) {
    for (int thread = 0; thread < threads; ++thread) {
        lanes.push_back({dnnl::stream(engine), {}, {}, {}});
    }
    const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
    const auto includes = [&](dnnl::cpu_isa set) {  // bits are the sets that a set includes
        return (isa & static_cast<unsigned>(set)) == static_cast<unsigned>(set);
    };
    // So that the variable that limits oneDNN also limits our own kernels.
    kernels.fp32_panels = has_avx512(DType::fp32) && includes(dnnl::cpu_isa::avx512_core);
    kernels.bf16_panels = has_avx512(DType::bf16) && includes(dnnl::cpu_isa::avx512_core_bf16);
}

Engine::Engine(int threads) : threads_(std::max(1, threads)) {
    bind_thread();
    state_ = std::make_unique<State>(threads_);
}

Engine::~Engine() = default;

void Engine::bind_thread() const {
    if (omp_get_max_threads() != threads_) omp_set_num_threads(threads_);
}

}  // namespace vocabpipe::kernels::host
