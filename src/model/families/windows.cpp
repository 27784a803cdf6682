// SPDX-License-Identifier: Apache-2.0
#include "src/model/families/windows.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace vocabpipe {

void set_windows(ModelConfig& c, int64_t window, const HasWindow& windowed) {
    std::vector<bool> has(static_cast<size_t>(std::max(c.num_layers, 0)));
    for (size_t i = 0; i < has.size(); ++i) has[i] = window > 0 && windowed(static_cast<int>(i));
    const bool any = std::ranges::find(has, true) != has.end();
    c.windowed = any ? std::move(has) : std::vector<bool>();
    c.sliding_window = any ? window : 0;
}

}  // namespace vocabpipe
