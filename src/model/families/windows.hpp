// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/model_config.hpp"

#include <cstdint>
#include <functional>

namespace vocabpipe {

/// Tokens that the windows of Gemma 2 and Mistral were published with; transformers' default of
/// sliding_window.
inline constexpr int64_t kDefaultWindow = 4096;

/// Which layers a family gives the window to.
using HasWindow = std::function<bool(int layer)>;

/// Lets these layers see `window` tokens. 0, or no such layer: none has a window.
void set_windows(ModelConfig& config, int64_t window, const HasWindow& windowed);

/// Of families with the window in all layers.
[[nodiscard]] inline bool every_layer(int /*layer*/) {
    return true;
}

}  // namespace vocabpipe
