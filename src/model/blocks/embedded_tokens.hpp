// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/stage_pass.hpp"
#include "src/model/parameter_source.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace vocabpipe {

/// Learned positions.
struct PositionsOptions {
    std::string name;       ///< without ".weight"
    int64_t positions = 0;  ///< rows of the weight
    int64_t hidden_size = 0;
    float init_std = 0;
};

struct EmbeddedTokensOptions {
    std::optional<PositionsOptions> positions;
    float scale = 1;  ///< without learned positions
};

/// Prepares embedded tokens for the first layer: adds learned positions, or scales the tokens.
class EmbeddedTokens {
public:
    EmbeddedTokens(const EmbeddedTokensOptions& options, ParameterSource& parameters);

    /// x, y (N/t, h): the rank's own rows, which may begin within a sequence.
    void forward(const StagePass& pass, ConstTensor x, Tensor y) const;
    /// dx (N/t, h), the gradient of y, becomes that of x.
    void backward_input(const StagePass& pass, Tensor dx) const;
    void backward_weight(const StagePass& pass, ConstTensor dy) const;

private:
    float scale_;
    bool learned_;
    Parameter* positions_;
};

}  // namespace vocabpipe
