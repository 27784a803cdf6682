// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/random.hpp"

#include "kernels/check.hpp"
#include "kernels/counter_rng.hpp"
#include "kernels/host/parallel.hpp"

namespace vocabpipe::kernels::host {

namespace {

/// Element i is value(number i % 4 of block(i / 4)), counted from first_element on.
template <typename Block, typename Value>
void fill(Context& ctx, Tensor out, int64_t first_element, const Block& block_of,
          const Value& value) {
    require(out.dtype == DType::fp32, "an fp32 tensor");
    // By elements: parameters are filled piece by piece, as one row.
    parallel_ranges(ctx, out.size(), out.size(), [&](int64_t begin, int64_t end) {
        uint64_t block = ~uint64_t{0};
        std::array<double, 4> numbers{};
        int64_t row = begin / out.cols;
        int64_t col = begin % out.cols;
        for (int64_t i = begin; i < end; ++i) {
            const auto element = static_cast<uint64_t>(first_element + i);
            if (element / 4 != block) {
                block = element / 4;
                numbers = block_of(block);
            }
            out.as<float>()[row * out.stride + col] =
                static_cast<float>(value(numbers[element % 4]));
            if (++col == out.cols) {
                col = 0;
                ++row;
            }
        }
    });
}

}  // namespace

void fill_normal(Context& ctx, Tensor out, uint64_t seed, uint64_t parameter_id,
                 int64_t first_element, float std) {
    fill(
        ctx, out, first_element,
        [&](uint64_t block) { return normal_block(seed, parameter_id, block); },
        [&](double normal) { return std * normal; });
}

void fill_uniform(Context& ctx, Tensor out, uint64_t seed, uint64_t parameter_id,
                  int64_t first_element, float bound) {
    fill(
        ctx, out, first_element,
        [&](uint64_t block) { return uniform_block(seed, parameter_id, block); },
        [&](double uniform) { return bound * (2 * uniform - 1); });
}

}  // namespace vocabpipe::kernels::host
