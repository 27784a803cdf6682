// SPDX-License-Identifier: Apache-2.0
#include "src/select/knn/embedding_rows.hpp"

#include <algorithm>
#include <vector>

namespace vocabpipe {

void for_each_embedding(EmbeddingInput& input, int64_t first, int64_t last,
                        const std::function<void(int64_t sample, const float* row)>& use) {
    const int64_t row_bytes = input.width() * static_cast<int64_t>(sizeof(float));
    const int64_t at_once =
        std::max<int64_t>(static_cast<int64_t>(kEmbeddingReadBytes) / row_bytes, 1);
    std::vector<float> rows;
    for (int64_t begin = first; begin < last; begin += at_once) {
        const int64_t count = std::min(at_once, last - begin);
        rows.resize(static_cast<size_t>(count * input.width()));
        input.read(begin, rows);
        for (int64_t i = 0; i < count; ++i) use(begin + i, rows.data() + i * input.width());
    }
}

}  // namespace vocabpipe
