// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/operators.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/elements.hpp"

namespace vocabpipe::kernels::reference {

void cached_attention_forward(Context& ctx, ConstTensor q, ConstTensor kv, ConstTensor sinks,
                              const AttentionShape& shape, Tensor out) {
    const int64_t d = shape.head_size, values = shape.value_size();
    const double scale = shape.scale != 0 ? shape.scale : 1.0 / std::sqrt(static_cast<double>(d));
    const auto cap = static_cast<double>(shape.softcap);
    for (int64_t n = 0; n < q.rows; ++n) {
        const int64_t query = shape.seq_length - q.rows + n;
        const int64_t first = shape.window > 0 ? std::max<int64_t>(query - shape.window + 1, 0) : 0;
        for (int64_t head = 0; head < shape.heads; ++head) {
            const int64_t kv_head = head / (shape.heads / shape.kv_heads);
            const int64_t k = kv_head * d, v = shape.key_columns() + kv_head * values;
            std::vector<double> scores;
            for (int64_t key = first; key <= query; ++key) {
                double sum = 0.0;
                for (int64_t i = 0; i < d; ++i)
                    sum += get(q, n, head * d + i) * get(kv, key, k + i);
                scores.push_back(cap > 0 ? cap * std::tanh(sum * scale / cap) : sum * scale);
            }
            const double largest = *std::max_element(scores.begin(), scores.end());
            double total = 0.0;
            for (double& score : scores) total += score = std::exp(score - largest);
            if (sinks) total += std::exp(get(sinks, 0, head) - largest);
            for (int64_t i = 0; i < values; ++i) {
                double value = 0.0;
                for (int64_t key = first; key <= query; ++key) {
                    value += scores[static_cast<size_t>(key - first)] / total * get(kv, key, v + i);
                }
                set(out, n, head * values + i, value);
            }
        }
    }
    ctx.poll();
}

}  // namespace vocabpipe::kernels::reference
