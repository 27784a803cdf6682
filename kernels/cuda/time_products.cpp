// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <limits>
#include <optional>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/engine_state.hpp"
#include "kernels/cuda/product_choices.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr int kRounds = 3;    // the least time counts: disturbances only add
constexpr int kRunsEach = 5;  // enqueued together, to hide the host's time
/// Another algorithm must take at most this share of the first one's time: smaller gains are noise.
constexpr float kGain = 0.98F;
constexpr float kRefused = std::numeric_limits<float>::infinity();

/// A matrix of random numbers, or several that are `step` elements apart; aligned to `alignment`
/// bytes and to no more. Holds no memory if the GPU has too little.
class RandomMatrices {
public:
    RandomMatrices(int64_t rows, int64_t cols, int64_t stride, DType type, int64_t batch,
                   int64_t step, int alignment, cudaStream_t stream) {
        const int64_t elements = (rows - 1) * stride + cols + (batch - 1) * step;
        const auto bytes = static_cast<size_t>(elements * size_of(type));
        if (cudaMalloc(&memory_, bytes + kLargestAlignment) != cudaSuccess) {
            (void)cudaGetLastError();  // otherwise the next check reports it again
            memory_ = nullptr;
            return;
        }
        fill(bytes + kLargestAlignment, type, stream);
        auto* const first = static_cast<std::byte*>(memory_);
        data_ = alignment < kLargestAlignment ? first + alignment : first;
        view_ = Tensor(data_, rows, cols, stride, type);
    }
    ~RandomMatrices() { (void)cudaFree(memory_); }
    RandomMatrices(const RandomMatrices&) = delete;
    RandomMatrices& operator=(const RandomMatrices&) = delete;

    [[nodiscard]] bool exists() const { return memory_ != nullptr; }
    [[nodiscard]] Tensor view() const { return view_; }

private:
    /// Random, because zeros or equal numbers draw less power and so run faster than a model's.
    void fill(size_t bytes, DType type, cudaStream_t stream) const {
        constexpr size_t kNumbers = size_t{1} << 16;
        std::vector<uint32_t> block(kNumbers);
        uint32_t state = 1;
        for (uint32_t& number : block) {
            const auto next = [&] {
                state = state * 1664525 + 1013904223;
                const float value = static_cast<float>(state >> 8) * 0x1p-23F - 1.0F;
                return std::bit_cast<uint32_t>(value);
            };
            number = next();
            if (type == DType::bf16) number = (number & 0xffff0000U) | next() >> 16;
        }
        size_t done = std::min(bytes, block.size() * sizeof block[0]);
        check(cudaMemcpyAsync(memory_, block.data(), done, cudaMemcpyHostToDevice, stream),
              "cudaMemcpyAsync");
        for (auto* const first = static_cast<std::byte*>(memory_); done < bytes;) {
            const size_t more = std::min(done, bytes - done);
            check(cudaMemcpyAsync(first + done, first, more, cudaMemcpyDeviceToDevice, stream),
                  "cudaMemcpyAsync");
            done += more;
        }
        check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");  // `block` is destroyed
    }

    void* memory_ = nullptr;
    std::byte* data_ = nullptr;
    Tensor view_;
};

/// Matrices of a shape; the addend is c itself, as in gradient accumulation.
struct Operands {
    Operands(const ProductShape& s, cudaStream_t stream)
        : a(s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k, s.a_stride, s.ab_type, s.batch,
            s.a_step, s.a_alignment, stream),
          b(s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n, s.b_stride, s.ab_type, s.batch,
            s.b_step, s.b_alignment, stream),
          c(s.m, s.n, s.c_stride, s.c_type, s.batch, s.c_step, s.c_alignment, stream) {
        if (s.has_addend && s.addend_stride != s.c_stride) {
            addend.emplace(s.m, s.n, s.addend_stride, s.c_type, s.batch, s.c_step,
                           s.addend_alignment, stream);
        }
        if (s.has_bias) {
            bias.emplace(1, s.n, s.n, s.bias_type, 1, 0, s.bias_alignment, stream);
        }
        if (s.epilogue != Epilogue::none) {
            aux.emplace(s.m, s.n, s.aux_stride, s.c_type, 1, 0, kLargestAlignment, stream);
        }
    }
    [[nodiscard]] bool exist() const {
        const auto there = [](const auto& one) { return !one || one->exists(); };
        return a.exists() && b.exists() && c.exists() && there(addend) && there(bias) && there(aux);
    }
    [[nodiscard]] Product product(const ProductShape& s) const {
        Product p{.a = a.view(),
                  .transpose_a = s.transpose_a,
                  .b = b.view(),
                  .transpose_b = s.transpose_b,
                  .c = c.view()};
        if (s.has_addend) p.addend = addend ? addend->view() : c.view();
        if (bias) p.bias = bias->view();
        if (aux) p.aux = aux->view();
        p.epilogue = s.epilogue;
        p.batch = s.batch;
        p.a_step = s.a_step;
        p.b_step = s.b_step;
        p.c_step = s.c_step;
        return p;
    }

    RandomMatrices a, b, c;
    std::optional<RandomMatrices> addend, bias, aux;
};

class Timer {
public:
    explicit Timer(cudaStream_t stream) : stream_(stream) {
        check(cudaEventCreate(&begin_), "cudaEventCreate");
        check(cudaEventCreate(&end_), "cudaEventCreate");
    }
    ~Timer() {
        (void)cudaEventDestroy(begin_);
        (void)cudaEventDestroy(end_);
    }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

    /// Milliseconds that the stream needs for the work that `work` enqueues.
    [[nodiscard]] float time(auto&& work) {
        check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
        work();
        check(cudaEventRecord(end_, stream_), "cudaEventRecord");
        check(cudaEventSynchronize(end_), "cudaEventSynchronize");
        float ms = 0;
        check(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
        return ms;
    }

private:
    cudaStream_t stream_;
    cudaEvent_t begin_ = nullptr;
    cudaEvent_t end_ = nullptr;
};

}  // namespace

size_t worth_choosing(std::span<const float> times) {
    const auto first = std::ranges::find_if(times, [](float time) { return time < kRefused; });
    const auto best = std::ranges::min_element(times);
    return static_cast<size_t>((*best < kGain * *first ? best : first) - times.begin());
}

std::optional<size_t> fastest_candidate(Context& ctx, ProductPlan& plan, const Product& product) {
    Engine& engine = ctx.cuda();
    const Engine::Queue queue{engine.stream(), engine.workspace()};
    const auto launch = [&](size_t candidate) {
        return plan.enqueue(engine.state().blas, product, queue, candidate) ==
               CUBLAS_STATUS_SUCCESS;
    };
    std::vector<float> times(plan.candidates().size(), kRefused);
    std::vector<size_t> runs;  // candidates that are not refused
    for (size_t i = 0; i < times.size(); ++i) {
        if (launch(i)) runs.push_back(i);  // also warms up
    }
    if (runs.empty()) return std::nullopt;
    Timer timer(queue.stream);
    for (int round = 0; round < kRounds; ++round) {
        for (const size_t i : runs) {
            const float ms = timer.time([&] {
                for (int run = 0; run < kRunsEach; ++run) (void)launch(i);
            });
            times[i] = std::min(times[i], ms);
        }
    }
    return worth_choosing(times);
}

ProductChoices time_products(Context& ctx, std::span<const ProductShape> shapes,
                             const std::string& device) {
    Engine& engine = ctx.cuda();
    ProductChoices choices(device);
    for (const ProductShape& shape : shapes) {
        if (shape.workspace_bytes != static_cast<int64_t>(engine.workspace().size())) continue;
        const Operands operands(shape, engine.stream());
        if (!operands.exist()) continue;
        ProductPlan plan(engine.state().blas, shape);
        if (const auto best = fastest_candidate(ctx, plan, operands.product(shape))) {
            choices.set(shape, plan.candidates()[*best]);
        }
        check(cudaStreamSynchronize(engine.stream()), "cudaStreamSynchronize");
    }
    return choices;
}

}  // namespace vocabpipe::kernels::cuda
