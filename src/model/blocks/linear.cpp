// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/linear.hpp"

#include <numeric>

namespace vocabpipe {

namespace {

std::vector<FilePart> file_parts(const LinearOptions& options, const char* suffix) {
    std::vector<FilePart> parts;
    for (size_t i = 0; i < options.files.parts.size(); ++i) {
        parts.push_back({.name = options.files.parts[i] + suffix, .count = options.out[i]});
    }
    const int64_t groups = options.files.groups;
    if (groups == 0) return parts;
    const int64_t group_rows = std::reduce(options.out.begin(), options.out.end()) / groups;
    int64_t before = 0;  // in a group
    for (const int64_t out : options.out) {
        for (int64_t group = 0; group < groups; ++group) {
            parts.push_back({.name = options.files.name + suffix,
                             .count = out / groups,
                             .file_row = group * group_rows + before});
        }
        before += out / groups;
    }
    return parts;
}

std::vector<int64_t> ranges_of(const LinearOptions& options) {
    return options.cut == TensorCut::rows ? options.out : std::vector<int64_t>{};
}

/// One row, whose columns are the weight's rows.
TensorCut cut_of_bias(const LinearOptions& options) {
    return options.cut == TensorCut::rows ? TensorCut::columns : TensorCut::repeated;
}

}  // namespace

Linear::Linear(const LinearOptions& options, ParameterSource& parameters)
    : in_(options.in),
      out_(std::reduce(options.out.begin(), options.out.end())),
      weight_(parameters.next({.name = options.files.name + ".weight",
                               .rows = out_,
                               .cols = in_,
                               .init_std = options.init_std,
                               .weight_decay = true,
                               .transposed_in_files = options.files.transposed,
                               .parts = file_parts(options, ".weight"),
                               .cut = options.cut,
                               .ranges = ranges_of(options)})),
      bias_(options.bias ? parameters.next({.name = options.files.name + ".bias",
                                            .rows = 1,
                                            .cols = out_,
                                            .parts = file_parts(options, ".bias"),
                                            .cut = cut_of_bias(options),
                                            .ranges = ranges_of(options)})
                         : nullptr) {}

ConstTensor Linear::bias() const {
    return bias_ != nullptr ? ConstTensor(bias_->weight) : ConstTensor();
}

void Linear::forward(const StagePass& pass, ConstTensor x, Tensor y) const {
    pass.op().linear_forward(pass.ctx, x, weight_->weight, bias(), y);
}

void Linear::forward_onto(const StagePass& pass, ConstTensor x, ConstTensor residual,
                          Tensor y) const {
    if (!y) return;
    if (residual) {
        pass.op().linear_add_forward(pass.ctx, x, weight_->weight, bias(), residual,
                                     pass.scratch.columns(out_).row_range(0, y.rows), y);
    } else {
        forward(pass, x, y);
    }
}

void Linear::forward_gelu(const StagePass& pass, ConstTensor x, Tensor before, Tensor y) const {
    pass.op().linear_gelu_forward(pass.ctx, x, weight_->weight, bias(), before, y);
}

void Linear::backward_input(const StagePass& pass, ConstTensor dy, Tensor dx) const {
    pass.op().linear_backward_input(pass.ctx, dy, weight_->weight, dx);
}

void Linear::backward_input_gelu(const StagePass& pass, ConstTensor dy, ConstTensor before,
                                 Tensor dx) const {
    pass.op().linear_gelu_backward_input(pass.ctx, dy, weight_->weight, before, dx);
}

void Linear::backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x) const {
    pass.op().linear_backward_weight(pass.ctx, dy, x, weight_->gradient,
                                     bias_ != nullptr ? bias_->gradient : Tensor(),
                                     pass.weight_gradients.accumulate);
}

}  // namespace vocabpipe
