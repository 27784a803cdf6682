// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/linear.hpp"

#include "vocabpipe/activation.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

namespace vocabpipe {

namespace {

std::vector<FilePart> file_parts(const LinearOptions& options, const char* suffix) {
    std::vector<FilePart> parts = options.files.rows;
    for (FilePart& part : parts) part.name += suffix;
    if (!parts.empty()) return parts;
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

/// The parts of the product that have adapters: tensors of files.
std::vector<AdaptedPart> adapted_parts(const LinearOptions& options) {
    std::vector<AdaptedPart> adapted;
    const LinearFiles& files = options.files;
    if (files.parts.empty()) {
        if (!options.lora.targets(files.name)) return {};
        adapted.push_back({.module = files.name,
                           .out = std::reduce(options.out.begin(), options.out.end()),
                           .ranges = options.out,
                           .of_rows = file_parts(options, "")});
        return adapted;
    }
    int64_t first = 0;
    for (size_t i = 0; i < files.parts.size(); first += options.out[i++]) {
        if (!options.lora.targets(files.parts[i])) continue;
        adapted.push_back({.module = files.parts[i],
                           .first = first,
                           .out = options.out[i],
                           .ranges = {options.out[i]}});
        std::ranges::copy_if(files.rows, std::back_inserter(adapted.back().of_rows),
                             [&](const FilePart& rows) { return rows.name == files.parts[i]; });
    }
    return adapted;
}

std::optional<Adapter> adapter_of(const LinearOptions& options, ParameterSource& parameters) {
    std::vector<AdaptedPart> parts = adapted_parts(options);
    if (parts.empty()) return std::nullopt;
    return Adapter({.lora = options.lora,
                    .name = options.files.name,
                    .parts = std::move(parts),
                    .in = options.in,
                    .out = std::reduce(options.out.begin(), options.out.end()),
                    .cut = options.cut},
                   parameters);
}

/// LogicalParameter::ranges: more than one range is cut range by range.
std::vector<int64_t> cut_ranges(const LinearOptions& options) {
    const bool several = options.cut == TensorCut::rows && options.out.size() > 1;
    return several ? options.out : std::vector<int64_t>();
}

}  // namespace

Linear::Linear(const LinearOptions& options, ParameterSource& parameters)
    : in_(options.in),
      out_(std::reduce(options.out.begin(), options.out.end())),
      cut_(options.cut),
      weight_(parameters.next({.name = options.files.name + ".weight",
                               .rows = out_,
                               .cols = in_,
                               .init_std = options.init_std,
                               .weight_decay = true,
                               .linear = true,
                               .transposed_in_files = options.files.transposed,
                               .parts = file_parts(options, ".weight"),
                               .cut = options.cut,
                               .ranges = cut_ranges(options)})),
      bias_(options.bias
                ? parameters.next({.name = options.files.name + ".bias",
                                   .rows = 1,
                                   .cols = out_,
                                   .parts = file_parts(options, ".bias"),
                                   .cut = options.cut == TensorCut::rows ? TensorCut::columns
                                                                         : TensorCut::repeated,
                                   .ranges = cut_ranges(options)})
                : nullptr),
      adapter_(adapter_of(options, parameters)) {}

ConstTensor Linear::bias() const {
    return bias_ != nullptr ? ConstTensor(bias_->weight) : ConstTensor();
}

void Linear::multiply(const StagePass& pass, ConstTensor x, ConstTensor bias, Tensor y) const {
    if (pass.keeps_rows_apart(x.rows)) {
        pass.op().linear_rows_forward(pass.ctx, x, weight_->weight, bias, {}, {}, y);
    } else {
        pass.op().linear_forward(pass.ctx, x, weight_->weight, bias, y);
    }
    if (adapter_) adapter_->add_forward(pass, x, y);
}

void Linear::forward(const StagePass& pass, ConstTensor x, Tensor y) const {
    multiply(pass, x, bias(), y);
}

void Linear::forward_without_bias(const StagePass& pass, ConstTensor x, Tensor y) const {
    multiply(pass, x, {}, y);
}

void Linear::forward_onto(const StagePass& pass, ConstTensor x, ConstTensor residual,
                          Tensor y) const {
    if (!y) return;
    if (!residual) return forward(pass, x, y);
    const auto add_forward = pass.keeps_rows_apart(x.rows) ? pass.op().linear_rows_forward
                                                           : pass.op().linear_add_forward;
    add_forward(pass.ctx, x, weight_->weight, bias(), residual, pass.scratch.own_rows(y.rows, out_),
                y);
    if (adapter_) adapter_->add_forward(pass, x, y);
}

void Linear::forward_gelu(const StagePass& pass, ConstTensor x, Tensor before, Tensor y) const {
    if (adapter_) {
        forward(pass, x, before);
        pass.op().activation_forward(pass.ctx, kernels::Activation::gelu_tanh, before, y);
    } else if (pass.keeps_rows_apart(x.rows)) {
        for (int64_t row = 0; row < x.rows; ++row) {
            pass.op().linear_gelu_forward(pass.ctx, x.row_range(row, 1), weight_->weight, bias(),
                                          before.row_range(row, 1), y.row_range(row, 1));
        }
    } else {
        pass.op().linear_gelu_forward(pass.ctx, x, weight_->weight, bias(), before, y);
    }
}

void Linear::backward_input(const StagePass& pass, ConstTensor dy, Tensor dx) const {
    pass.op().linear_backward_input(pass.ctx, dy, weight_->weight, dx);
    if (adapter_) adapter_->add_backward_input(pass, dy, dx);
}

void Linear::backward_input_gelu(const StagePass& pass, ConstTensor dy, ConstTensor before,
                                 Tensor dx) const {
    if (adapter_) {
        backward_input(pass, dy, dx);
        pass.op().activation_backward(pass.ctx, kernels::Activation::gelu_tanh, dx, before, dx);
    } else {
        pass.op().linear_gelu_backward_input(pass.ctx, dy, weight_->weight, before, dx);
    }
}

void Linear::backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x) const {
    backward_own_weight(pass, dy, x);
    if (adapter_) adapter_->backward_weight(pass, dy, x);
}

void Linear::backward_own_weight(const StagePass& pass, ConstTensor dy, ConstTensor x) const {
    if (!weight_->gradient) return backward_bias(pass, dy);
    pass.op().linear_backward_weight(pass.ctx, dy, x, weight_->gradient,
                                     bias_ != nullptr ? bias_->gradient : Tensor(),
                                     pass.weight_gradients.accumulate);
}

void Linear::backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x,
                             ConstTensor of_bias) const {
    if (weight_->gradient) {
        pass.op().linear_backward_weight(pass.ctx, dy, x, weight_->gradient, {},
                                         pass.weight_gradients.accumulate);
    }
    backward_bias(pass, of_bias);
    if (adapter_) adapter_->backward_weight(pass, dy, x);
}

void Linear::backward_bias(const StagePass& pass, ConstTensor dy) const {
    if (bias_ == nullptr || !bias_->gradient) return;
    pass.op().column_sums(pass.ctx, dy, bias_->gradient, pass.weight_gradients.accumulate);
}

}  // namespace vocabpipe
