// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/c/output_layer.h"

#include "kernels/host/operators.hpp"
#include "src/bindings/c/calls.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/operators.hpp"
#include "vocabpipe/vocabulary_loss.hpp"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace vocabpipe;
namespace c = vocabpipe::bindings::c;

struct vp_output_layer {
    ConstTensor weight;
    kernels::VocabularyShard shard;
    kernels::LossOptions options;
    Context context;
    std::vector<std::byte> workspace;  ///< of the call that runs

    [[nodiscard]] std::span<std::byte> room(int64_t bytes) {
        workspace.resize(static_cast<size_t>(bytes));
        return workspace;
    }
};

namespace {

constexpr int32_t kHostMemory = 1;  // DLPack's kDLCPU
constexpr uint8_t kInt = 0, kFloat = 2, kBfloat = 4;
constexpr int64_t kFactors = 2;

std::string shape_text(std::span<const int64_t> shape) {
    std::string text = "(";
    for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
    return text + ")";
}

/// Checks everything but the type; `shape`: -1 for any size. Returns the first element.
std::byte* checked(const vp_tensor* tensor, const std::string& name,
                   std::initializer_list<int64_t> shape, int64_t item_bytes) {
    c::require(tensor, name.c_str());
    const auto refuse = [&](const std::string& what) { throw UsageError(name + ": " + what); };
    if (tensor->device_type != kHostMemory) {
        refuse("device_type " + std::to_string(tensor->device_type) + ": must be 1, the host");
    }
    if (std::cmp_not_equal(tensor->ndim, shape.size())) {
        refuse("ndim " + std::to_string(tensor->ndim) + ": must be " +
               std::to_string(shape.size()));
    }
    c::require(tensor->shape, (name + " shape").c_str());
    const std::span<const int64_t> given(tensor->shape, shape.size());
    int64_t elements = 1;
    for (size_t i = 0; i < shape.size(); ++i) {
        const int64_t wanted = shape.begin()[i];
        if (given[i] < 0 || (wanted >= 0 && given[i] != wanted)) {
            std::vector<int64_t> expected(shape);
            refuse("shape " + shape_text(given) + ": must be " + shape_text(expected) +
                   (wanted < 0 ? ", -1 for any size" : ""));
        }
        if (given[i] > 0 && elements > std::numeric_limits<int32_t>::max() / given[i]) {
            refuse("shape " + shape_text(given) + ": must have fewer than 2^31 elements");
        }
        elements *= given[i];
    }
    if (tensor->strides != nullptr && elements > 0) {
        const int64_t columns = given.back();
        if (tensor->strides[shape.size() - 1] != 1 && columns > 1) {
            refuse("strides: the elements of a row must be adjacent");
        }
        if (shape.size() == 2 && given[0] > 1 && tensor->strides[0] < columns) {
            refuse("strides: rows must be at least " + std::to_string(columns) + " elements apart");
        }
    }
    if (elements > 0) c::require(tensor->data, (name + " data").c_str());
    auto* const first = static_cast<std::byte*>(tensor->data) + tensor->byte_offset;
    if (elements > 0 && reinterpret_cast<uintptr_t>(first) % static_cast<uintptr_t>(item_bytes)) {
        refuse("its first element is not aligned to " + std::to_string(item_bytes) + " bytes");
    }
    return first;
}

bool has_type(const vp_tensor& tensor, uint8_t code, uint8_t bits) {
    return tensor.type_code == code && tensor.type_bits == bits && tensor.type_lanes == 1;
}

[[noreturn]] void refuse_type(const std::string& name, const std::string& wanted) {
    throw UsageError(name + ": its type must be " + wanted);
}

/// A matrix of one type.
Tensor matrix(const vp_tensor* tensor, const std::string& name, int64_t rows, int64_t columns,
              DType type) {
    std::byte* const data = checked(tensor, name, {rows, columns}, size_of(type));
    const bool fits =
        type == DType::fp32 ? has_type(*tensor, kFloat, 32) : has_type(*tensor, kBfloat, 16);
    if (!fits) refuse_type(name, type == DType::fp32 ? "float of 32 bits" : "bfloat of 16 bits");
    const int64_t stride =
        tensor->strides != nullptr && tensor->shape[0] > 1 ? tensor->strides[0] : tensor->shape[1];
    return {data, tensor->shape[0], tensor->shape[1], stride, type};
}

std::span<float> floats(const vp_tensor* tensor, const std::string& name, int64_t count) {
    std::byte* const data = checked(tensor, name, {count}, sizeof(float));
    if (!has_type(*tensor, kFloat, 32)) refuse_type(name, "float of 32 bits");
    return {reinterpret_cast<float*>(data), static_cast<size_t>(tensor->shape[0])};
}

std::span<const int32_t> label_span(const vp_tensor* tensor, int64_t count,
                                    const kernels::VocabularyShard& shard) {
    std::byte* const data = checked(tensor, "labels", {count}, sizeof(int32_t));
    if (!has_type(*tensor, kInt, 32)) refuse_type("labels", "int of 32 bits");
    const std::span<const int32_t> labels(reinterpret_cast<const int32_t*>(data),
                                          static_cast<size_t>(tensor->shape[0]));
    kernels::check_labels(labels, shard);
    return labels;
}

DType float_type(const vp_tensor* tensor, const std::string& name) {
    c::require(tensor, name.c_str());
    if (has_type(*tensor, kFloat, 32)) return DType::fp32;
    if (has_type(*tensor, kBfloat, 16)) return DType::bf16;
    refuse_type(name, "float of 32 bits or bfloat of 16 bits");
}

kernels::LossOptions loss_options(const vp_output_layer_options& from) {
    const auto check = [](const char* name, float value, bool good, const char* limit) {
        if (good) return;
        throw UsageError(std::string(name) + " " + std::to_string(value) + ": must be " + limit);
    };
    check("label_smoothing", from.label_smoothing,
          from.label_smoothing >= 0 && from.label_smoothing < 1, "at least 0 and below 1");
    check("z_loss", from.z_loss, from.z_loss >= 0 && from.z_loss <= 1e6F, "from 0 to 1e6");
    check("logit_softcap", from.logit_softcap,
          from.logit_softcap >= 0 && from.logit_softcap <= 1e6F, "from 0 to 1e6");
    if (from.logit_softcap > 0 && from.label_smoothing > 0) {
        throw UsageError("label_smoothing: excludes logit_softcap; set one of them to 0");
    }
    return {.label_smoothing = from.label_smoothing,
            .z_loss = from.z_loss,
            .logit_softcap = from.logit_softcap};
}

const kernels::Operators& operators() {
    return kernels::host::operators();
}

}  // namespace

extern "C" {

const char* vp_output_layer_last_error(void) {
    return vp_last_error();
}

vp_status vp_output_layer_make(const vp_output_layer_options* options, const vp_tensor* weight,
                               vp_output_layer** layer) {
    return c::guarded([&] {
        c::require(layer, "layer");
        const vp_output_layer_options from = c::given(options, "options");
        const Tensor rows = matrix(weight, "weight", -1, -1, float_type(weight, "weight"));
        if (rows.rows < 1 || rows.cols < 1) {
            throw UsageError("weight: shape " + shape_text({weight->shape, 2}) +
                             ": must have a row and a column");
        }
        constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max();
        if (from.first_row < 0 || from.first_row > kMostRows - rows.rows) {
            throw UsageError("first_row " + std::to_string(from.first_row) +
                             ": must be at least 0, and rows end below 2^31");
        }
        const int64_t end = from.first_row + rows.rows;
        const int64_t vocab_size = from.vocab_size == 0 ? end : from.vocab_size;
        if (vocab_size < end || vocab_size > kMostRows) {
            throw UsageError("vocab_size " + std::to_string(vocab_size) + ": must be from " +
                             std::to_string(end) + ", where the shard ends, to 2^31 - 1");
        }
        constexpr int32_t kMostThreads = 1024;
        if (from.threads < 0 || from.threads > kMostThreads) {
            throw UsageError("threads " + std::to_string(from.threads) + ": must be from 0 to " +
                             std::to_string(kMostThreads));
        }
        *layer = new vp_output_layer{
            .weight = rows,
            .shard = {.first_row = from.first_row, .rows = rows.rows, .vocab_size = vocab_size},
            .options = loss_options(from),
            .context = Context({.threads = from.threads == 0 ? 1 : from.threads}),
            .workspace = {}};
    });
}

void vp_output_layer_free(vp_output_layer* layer) {
    delete layer;
}

vp_status vp_output_layer_score(vp_output_layer* layer, const vp_tensor* hidden,
                                const vp_tensor* labels, vp_tensor* exp_logits,
                                vp_tensor* statistics) {
    return c::guarded([&] {
        c::require(layer, "layer");
        const DType type = layer->weight.dtype;
        const Tensor x = matrix(hidden, "hidden", -1, layer->weight.cols, type);
        operators().vocabulary_score(
            layer->context, x, layer->weight, label_span(labels, x.rows, layer->shard),
            layer->shard, layer->options,
            matrix(exp_logits, "exp_logits", x.rows, layer->shard.rows, type),
            matrix(statistics, "statistics", x.rows, kernels::kStatistics, DType::fp32),
            /*logits=*/{},
            layer->room(
                operators().vocabulary_score_workspace_bytes(x.rows, layer->shard.rows, type)));
    });
}

vp_status vp_output_layer_combine(vp_output_layer* layer, const vp_tensor* statistics,
                                  int32_t shard, const vp_tensor* labels,
                                  const vp_tensor* gradients, vp_tensor* losses,
                                  vp_tensor* factors) {
    return c::guarded([&] {
        c::require(layer, "layer");
        const Tensor out = matrix(factors, "factors", -1, kFactors, DType::fp32);
        const Tensor all = matrix(statistics, "statistics", -1, kernels::kStatistics, DType::fp32);
        if (out.rows == 0 || all.rows == 0 || all.rows % out.rows != 0) {
            throw UsageError("statistics: " + std::to_string(all.rows) +
                             " rows; must be a multiple of the " + std::to_string(out.rows) +
                             " tokens that factors has, which is at least one");
        }
        if (shard < 0 || shard >= all.rows / out.rows) {
            throw UsageError("shard " + std::to_string(shard) + ": must be from 0 to " +
                             std::to_string(all.rows / out.rows - 1));
        }
        operators().combine_statistics(
            layer->context, all, label_span(labels, out.rows, layer->shard),
            floats(gradients, "gradients", out.rows), layer->shard, shard, layer->options, out,
            floats(losses, "losses", out.rows));
    });
}

vp_status vp_output_layer_input_gradient(vp_output_layer* layer, const vp_tensor* exp_logits,
                                         const vp_tensor* factors, const vp_tensor* labels,
                                         const vp_tensor* gradients, vp_tensor* hidden_gradient) {
    return c::guarded([&] {
        c::require(layer, "layer");
        const Tensor u =
            matrix(hidden_gradient, "hidden_gradient", -1, layer->weight.cols, DType::fp32);
        const Tensor e =
            matrix(exp_logits, "exp_logits", u.rows, layer->shard.rows, layer->weight.dtype);
        const Tensor f = matrix(factors, "factors", u.rows, kFactors, DType::fp32);
        const std::span<const int32_t> y = label_span(labels, u.rows, layer->shard);
        const std::span<const float> g = floats(gradients, "gradients", u.rows);
        operators().vocabulary_input_product(layer->context, e, layer->weight, u);
        operators().vocabulary_input_gradient(
            layer->context, u, f, layer->weight, y, g, layer->shard, layer->options,
            layer->room(operators().vocabulary_input_gradient_workspace_bytes(u.cols)));
    });
}

vp_status vp_output_layer_weight_gradient(vp_output_layer* layer, const vp_tensor* hidden,
                                          const vp_tensor* exp_logits, const vp_tensor* factors,
                                          const vp_tensor* labels, const vp_tensor* gradients,
                                          vp_tensor* weight_gradient, int32_t accumulate) {
    return c::guarded([&] {
        c::require(layer, "layer");
        const DType type = layer->weight.dtype;
        const Tensor x = matrix(hidden, "hidden", -1, layer->weight.cols, type);
        operators().vocabulary_weight_gradient(
            layer->context, x, matrix(exp_logits, "exp_logits", x.rows, layer->shard.rows, type),
            matrix(factors, "factors", x.rows, kFactors, DType::fp32),
            label_span(labels, x.rows, layer->shard), floats(gradients, "gradients", x.rows),
            layer->shard, layer->options,
            matrix(weight_gradient, "weight_gradient", layer->shard.rows, layer->weight.cols,
                   DType::fp32),
            accumulate != 0,
            layer->room(operators().vocabulary_weight_gradient_workspace_bytes(
                x.rows, layer->weight.cols, type)));
    });
}

}  // extern "C"
