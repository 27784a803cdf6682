// SPDX-License-Identifier: Apache-2.0
#include "tests/train/random_graph.hpp"

#include "kernels/bf16.hpp"
#include "vocabpipe/model_graph.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::testing {

namespace {

constexpr int64_t kMostRows = 16;     ///< of a value in a sequence
constexpr int64_t kMostColumns = 24;  ///< of a value

// --- operators of the test's own -----------------------------------------------------------------

float number(ConstTensor x, int64_t i) {
    return x.dtype == DType::fp32 ? x.as<float>()[i] : kernels::to_float(x.as<kernels::Bf16>()[i]);
}

void set_number(Tensor x, int64_t i, float value) {
    if (x.dtype == DType::fp32) {
        x.as<float>()[i] = value;
    } else {
        x.as<kernels::Bf16>()[i] = kernels::to_bf16(value);
    }
}

/// y = tanh(x), whose backward reads y alone.
LayerOperator own_tanh(int64_t columns, bool recompute) {
    return {.name = "own tanh",
            .columns = columns,
            .forward =
                [](Context&, const Microbatch&, const OperatorTensors& in, Tensor y) {
                    for (int64_t i = 0; i < y.size(); ++i) {
                        set_number(y, i, std::tanh(number(in.x[0], i)));
                    }
                },
            .backward_input =
                [](Context&, const Microbatch&, const OperatorTensors& in, ConstTensor dy,
                   std::span<const Tensor> dx) {
                    for (int64_t i = 0; i < dy.size(); ++i) {
                        const float y = number(in.y, i);
                        set_number(dx[0], i, number(dy, i) * (1 - y * y));
                    }
                },
            .backward_reads_inputs = false,
            .backward_reads_output = true,
            .recompute = recompute};
}

/// y = sin(a) cos(b).
LayerOperator own_product(int64_t columns, bool recompute) {
    return {.name = "own product",
            .columns = columns,
            .forward =
                [](Context&, const Microbatch&, const OperatorTensors& in, Tensor y) {
                    for (int64_t i = 0; i < y.size(); ++i) {
                        set_number(y, i,
                                   std::sin(number(in.x[0], i)) * std::cos(number(in.x[1], i)));
                    }
                },
            .backward_input =
                [](Context&, const Microbatch&, const OperatorTensors& in, ConstTensor dy,
                   std::span<const Tensor> dx) {
                    for (int64_t i = 0; i < dy.size(); ++i) {
                        const float a = number(in.x[0], i), b = number(in.x[1], i);
                        set_number(dx[0], i, number(dy, i) * std::cos(a) * std::cos(b));
                        set_number(dx[1], i, -number(dy, i) * std::sin(a) * std::sin(b));
                    }
                },
            .recompute = recompute};
}

/// y = v x + w, of every column its own.
LayerOperator own_affine(const std::string& name, int64_t columns) {
    return {.name = "own affine",
            .columns = columns,
            .weights = {{.name = name + ".v", .cols = columns, .init_std = 0.5F},
                        {.name = name + ".w", .cols = columns, .init_constant = 0.25F}},
            .forward =
                [](Context&, const Microbatch&, const OperatorTensors& in, Tensor y) {
                    for (int64_t i = 0; i < y.size(); ++i) {
                        const int64_t column = i % y.cols;
                        set_number(y, i,
                                   number(in.x[0], i) * number(in.weights[0], column) +
                                       number(in.weights[1], column));
                    }
                },
            .backward_input =
                [](Context&, const Microbatch&, const OperatorTensors& in, ConstTensor dy,
                   std::span<const Tensor> dx) {
                    for (int64_t i = 0; i < dy.size(); ++i) {
                        set_number(dx[0], i, number(dy, i) * number(in.weights[0], i % dy.cols));
                    }
                },
            .backward_weight =
                [](Context&, const Microbatch&, const OperatorTensors& in, ConstTensor dy,
                   std::span<const Tensor> dweights, bool accumulate) {
                    for (int64_t column = 0; column < dy.cols; ++column) {
                        float v = 0, w = 0;
                        for (int64_t i = column; i < dy.size(); i += dy.cols) {
                            v += number(dy, i) * number(in.x[0], i);
                            w += number(dy, i);
                        }
                        float* const of_v = dweights[0].as<float>() + column;
                        float* const of_w = dweights[1].as<float>() + column;
                        *of_v = accumulate ? *of_v + v : v;
                        *of_w = accumulate ? *of_w + w : w;
                    }
                }};
}

/// The sum of a sequence's first row and its last, of `rows`.
LayerOperator own_ends(int64_t rows, int64_t columns) {
    return {.name = "own ends",
            .columns = columns,
            .rows = 1,
            .forward =
                [rows](Context&, const Microbatch&, const OperatorTensors& in, Tensor y) {
                    for (int64_t i = 0; i < y.size(); ++i) {
                        const int64_t first = i / y.cols * rows * y.cols + i % y.cols;
                        set_number(
                            y, i,
                            number(in.x[0], first) + number(in.x[0], first + (rows - 1) * y.cols));
                    }
                },
            .backward_input =
                [rows](Context&, const Microbatch&, const OperatorTensors&, ConstTensor dy,
                       std::span<const Tensor> dx) {
                    for (int64_t i = 0; i < dx[0].size(); ++i) {
                        const int64_t row = i / dy.cols, of = row / rows * dy.cols + i % dy.cols;
                        const int times = (row % rows == 0) + (row % rows == rows - 1);
                        set_number(dx[0], i, static_cast<float>(times) * number(dy, of));
                    }
                },
            .backward_reads_inputs = false};
}

// --- the model -----------------------------------------------------------------------------------

/// Composes a random model. The same seed composes the same one every time.
class Composer {
public:
    Composer(ModelGraph& g, uint64_t seed, int layers, std::ostream* log)
        : g_(g), random_(seed), budgets_(~seed), layers_(layers), log_(log) {}

    void compose(bool embeds, bool has_output) {
        if (embeds) add(g_.embedded_tokens(), "embedded_tokens", {}, false);
        for (int layer = 0; layer < layers_; ++layer) {
            if (budgets_() % 4 == 0) {
                const double share = static_cast<double>(budgets_() % 5) / 4;
                g_.activation_memory_budget(share);
                if (log_ != nullptr) *log_ << "budget " << share << "\n";
            }
            if (layer > 0) {
                g_.pipeline_stage();
                if (log_ != nullptr) *log_ << "-- layer " << layer << "\n";
            }
            for (uint64_t i = 1 + below(4); i > 0; --i) make_value();
            if (one_in(5)) lose(pick());
        }
        const size_t output = has_output ? as_tokens(pick()) : 0;
        if (has_output) ++values_[output].reads;
        // Everything is read by something.
        for (size_t i = 0; i < values_.size(); ++i) {
            if (values_[i].reads == 0) lose(i);
        }
        for (uint64_t i = below(3); i > 0; --i) keep_result();
        if (!has_output) return;
        g_.output(values_[output].value);
        say("output", {output});
    }
    [[nodiscard]] int results() const { return results_; }

private:
    struct Value {
        LayerValue value;
        bool cheap = false;  ///< recompute() takes it
        int reads = 0;
    };

    uint64_t below(uint64_t count) { return random_() % count; }
    bool one_in(uint64_t count) { return below(count) == 0; }
    [[nodiscard]] std::string new_name() { return "p" + std::to_string(names_++); }
    [[nodiscard]] LayerValue of(size_t i) const { return values_[i].value; }

    void say(const std::string& what, const std::vector<size_t>& read) {
        if (log_ == nullptr) return;
        *log_ << what;
        for (const size_t i : read) *log_ << " v" << i;
        *log_ << "\n";
    }

    /// Takes a new value into the pool.
    size_t add(LayerValue value, const std::string& what, const std::vector<size_t>& read,
               bool cheap) {
        for (const size_t i : read) ++values_[i].reads;
        say("v" + std::to_string(values_.size()) + " (" + std::to_string(value.rows()) + ", " +
                std::to_string(value.columns()) + ") = " + what,
            read);
        values_.push_back({value, cheap});
        mark(values_.size() - 1);
        return values_.size() - 1;
    }

    /// Sometimes says what selective recomputation shall do.
    void mark(size_t i) {
        if (!one_in(10)) return;
        if (one_in(2)) {
            static_cast<void>(g_.keep(of(i)));
            say("keep", {i});
        } else if (values_[i].cheap) {
            static_cast<void>(g_.recompute(of(i)));
            say("recompute", {i});
        }
    }

    /// A value to read: often the last one, or one that nothing reads yet.
    size_t pick() {
        if (values_.empty() || one_in(12)) return data();
        if (one_in(3)) return values_.size() - 1;
        const size_t i = below(values_.size());
        if (values_[i].reads == 0 || one_in(2)) return i;
        return below(values_.size());
    }

    size_t data() {
        const auto count = static_cast<int64_t>(1 + below(4));
        const auto first = static_cast<int64_t>(below(kRandomColumns - count + 1));
        return add(g_.data_columns(first, count), "data_columns", {}, true);
    }

    /// A value, or what is made of it for nobody else.
    void keep_result() {
        const size_t x = below(values_.size());
        LayerValue value = of(x);
        if (one_in(3)) value = g_.scale(value, 2);
        if (one_in(3)) value = value + value;
        if (one_in(3)) value = g_.mean_rows(value);
        static_cast<void>(g_.result("r" + std::to_string(results_++), value));
        say("result", {x});
    }

    /// One of the products that all values of these columns share.
    size_t shared_linear(size_t x) {
        const int64_t out = one_in(2) ? 4 : 6;
        const std::string group = std::to_string(of(x).columns()) + "to" + std::to_string(out);
        std::optional<LayerValue> y;
        g_.share(group, [&] { y = g_.linear("w", of(x), out); });
        return add(*y, "linear shared as " + group, {x}, false);
    }

    size_t linear(size_t x, std::vector<int64_t> out) {
        const bool bias = !one_in(3);
        return add(g_.linear(new_name(), of(x), {.out = std::move(out), .bias = bias}), "linear",
                   {x}, false);
    }

    /// A value with these columns, from x.
    size_t with_columns(size_t x, int64_t columns) {
        return of(x).columns() == columns ? x : linear(x, {columns});
    }

    size_t mean(size_t x) { return add(g_.mean_rows(of(x)), "mean_rows", {x}, false); }

    /// A value with these rows and columns, from x.
    size_t with_shape(size_t x, int64_t rows, int64_t columns) {
        if (of(x).rows() == rows) return with_columns(x, columns);
        if (of(x).rows() > rows && one_in(2)) {
            const auto first =
                static_cast<int64_t>(below(static_cast<uint64_t>(of(x).rows() - rows) + 1));
            const size_t part = add(g_.row_range(of(x), first, rows), "row_range", {x}, true);
            return with_columns(part, columns);
        }
        if (of(x).rows() > 1) x = mean(x);
        if (rows == 1) return with_columns(x, columns);
        x = linear(x, {rows * columns});
        return add(g_.reshape(of(x), columns), "reshape", {x}, true);
    }

    size_t as_tokens(size_t x) { return with_shape(x, g_.seq_length(), g_.model().hidden_size); }

    [[nodiscard]] kernels::Activation any_activation() {
        constexpr std::array kAll{kernels::Activation::gelu_tanh, kernels::Activation::silu,
                                  kernels::Activation::gelu};
        return kAll[below(kAll.size())];
    }

    [[nodiscard]] kernels::AttentionShape any_heads() {
        kernels::AttentionShape shape{.heads = one_in(2) ? 2 : 1, .head_size = 4};
        shape.kv_heads = one_in(2) ? shape.heads : 1;
        if (one_in(4)) shape.softcap = 2;
        if (one_in(4)) shape.value_head_size = one_in(2) ? 2 : 6;
        return shape;
    }

    size_t attention(size_t x) {
        kernels::AttentionShape shape = any_heads();
        shape.causal = one_in(2);
        if (shape.causal && one_in(3)) shape.window = 2;
        size_t qkv = linear(x, {shape.query_columns(), shape.key_columns(), shape.value_columns()});
        if (shape.value_size() == shape.head_size && one_in(3)) {
            const std::string of_q = new_name(), of_k = new_name();
            qkv = add(g_.head_norm(of_q, of_k, of(qkv), shape, {.epsilon = 0.1F}), "head_norm",
                      {qkv}, true);
        }
        if (!g_.model().learned_positions && of(qkv).rows() <= g_.seq_length()) {
            qkv = add(g_.rotary(of(qkv), shape), "rotary", {qkv}, true);
        }
        return add(g_.attention(of(qkv), shape),
                   std::string(shape.causal ? "causal " : "") + "attention", {qkv}, false);
    }

    size_t cross_attention(size_t x) {
        const kernels::AttentionShape shape = any_heads();
        const size_t q = with_columns(x, shape.query_columns());
        const size_t kv = linear(pick(), {shape.key_columns(), shape.value_columns()});
        return add(g_.attention(of(q), of(kv), shape), "cross-attention", {q, kv}, false);
    }

    size_t reshape(size_t x) {
        const int64_t size = of(x).rows() * of(x).columns();
        std::vector<int64_t> possible;
        for (int64_t columns = 1; columns <= kMostColumns; ++columns) {
            if (size % columns == 0 && size / columns <= kMostRows) possible.push_back(columns);
        }
        if (possible.empty()) return linear(x, {4});
        const int64_t columns = possible[below(possible.size())];
        return add(g_.reshape(of(x), columns), "reshape", {x}, true);
    }

    size_t row_range(size_t x) {
        const auto rows = static_cast<uint64_t>(of(x).rows());
        const uint64_t first = below(rows), count = 1 + below(rows - first);
        return add(g_.row_range(of(x), static_cast<int64_t>(first), static_cast<int64_t>(count)),
                   "row_range", {x}, true);
    }

    size_t column_range(size_t x) {
        const auto columns = static_cast<uint64_t>(of(x).columns());
        const uint64_t first = below(columns), count = 1 + below(columns - first);
        return add(g_.column_range(of(x), static_cast<int64_t>(first), static_cast<int64_t>(count)),
                   "column_range", {x}, true);
    }

    size_t join_rows(size_t x) {
        const size_t other = with_columns(pick(), of(x).columns());
        if (of(x).rows() + of(other).rows() > kMostRows) return mean(x);
        return add(g_.join_rows(of(x), of(other)), "join_rows", {x, other}, true);
    }

    size_t join_columns(size_t x) {
        std::vector<size_t> read{x};
        int64_t columns = of(x).columns();
        for (uint64_t i = 1 + below(2); i > 0; --i) {
            size_t other = pick();
            if (of(other).rows() != of(x).rows()) other = with_shape(other, of(x).rows(), 3);
            if (columns + of(other).columns() > kMostColumns) continue;
            columns += of(other).columns();
            read.push_back(other);
        }
        if (read.size() < 2) return linear(x, {4});
        std::vector<LayerValue> joined;
        for (const size_t i : read) joined.push_back(of(i));
        return add(g_.join_columns(joined), "join_columns", read, true);
    }

    size_t sum(size_t x) {
        const size_t other = with_shape(pick(), of(x).rows(), of(x).columns());
        return one_in(2) ? add(of(x) + of(other), "sum", {x, other}, true)
                         : add(of(other) + of(x), "sum", {other, x}, true);
    }

    size_t own(size_t x) {
        const int64_t columns = of(x).columns();
        switch (below(4)) {
            case 0: {
                const bool again = one_in(2);
                return add(g_.apply(own_tanh(columns, again), {of(x)}), "own tanh", {x}, true);
            }
            case 1: {
                const size_t other = with_shape(pick(), of(x).rows(), columns);
                const bool again = one_in(2);
                return add(g_.apply(own_product(columns, again), {of(x), of(other)}), "own product",
                           {x, other}, true);
            }
            case 2:
                return add(g_.apply(own_affine(new_name(), columns), {of(x)}), "own affine", {x},
                           true);
            default:
                return add(g_.apply(own_ends(of(x).rows(), columns), {of(x)}), "own ends", {x},
                           true);
        }
    }

    size_t activation(size_t x) {
        if (one_in(3)) {
            x = linear(x, {10});
            return add(g_.gated(any_activation(), of(x)), "gated", {x}, true);
        }
        const kernels::Activation activation = any_activation();
        const size_t before = one_in(2) ? linear(x, {6}) : x;
        const bool is_gelu = activation == kernels::Activation::gelu_tanh;
        const size_t after = add(g_.activation(activation, of(before)),
                                 is_gelu ? "gelu_tanh" : "activation", {before}, true);
        if (one_in(3)) linear(after, {2});  // a second one that reads it
        return one_in(2) ? linear(after, {4}) : after;
    }

    void make_value() {
        const size_t x = pick();
        switch (below(14)) {
            case 0:
                if (one_in(3)) {
                    shared_linear(x);
                } else {
                    linear(x, {static_cast<int64_t>(1 + below(12))});
                }
                return;
            case 1:
                add(g_.layer_norm(new_name(), of(x), 0.1F), "layer_norm", {x}, true);
                return;
            case 2:
                add(g_.rms_norm(new_name(), of(x), {.epsilon = 0.1F}), "rms_norm", {x}, true);
                return;
            case 3:
                activation(x);
                return;
            case 4:
                add(g_.scale(of(x), one_in(2) ? 0.5F : -1.25F), "scale", {x}, true);
                return;
            case 5:
                attention(x);
                return;
            case 6:
                cross_attention(x);
                return;
            case 7:
                add(g_.positions(new_name(), of(x)), "positions", {x}, true);
                return;
            case 8:
                reshape(x);
                return;
            case 9:
                one_in(2) ? row_range(x) : column_range(x);
                return;
            case 10:
                one_in(2) ? join_rows(x) : join_columns(x);
                return;
            case 11:
                own(x);
                return;
            case 12:
                mean(x);
                return;
            default:
                sum(x);
        }
    }

    /// Adds a loss of a value.
    void lose(size_t x) {
        if (g_.seq_length() % of(x).rows() != 0) x = mean(x);
        switch (below(3)) {
            case 0:
                x = with_columns(x, kRandomClasses);
                g_.cross_entropy(of(x));
                say("cross_entropy", {x});
                break;
            case 1:
                if (of(x).columns() > kRandomColumns) x = linear(x, {2});
                g_.squared_error(of(x), 0);
                say("squared_error", {x});
                break;
            default:
                x = with_columns(x, 1);
                x = add(g_.apply(own_tanh(1, false), {of(x)}), "own tanh", {x}, false);
                g_.loss(of(x));
                say("loss", {x});
        }
        ++values_[x].reads;
    }

    ModelGraph& g_;
    std::mt19937_64 random_;
    std::mt19937_64 budgets_;  ///< apart, so that the models are the same without budgets
    int layers_;
    std::ostream* log_;
    int names_ = 0;
    int results_ = 0;
    std::vector<Value> values_;
};

}  // namespace

RandomGraph random_graph(uint64_t seed, int most_layers) {
    std::mt19937_64 random(seed * 7919 + 1);
    const auto one_in = [&](uint64_t count) { return random() % count == 0; };
    ModelConfig base;
    base.hidden_size = one_in(2) ? 4 : 8;
    base.num_attention_heads = 1;
    base.kv_channels = 4;
    base.seq_length = static_cast<int64_t>(2 * (2 + random() % 4));
    base.max_position_embeddings = base.seq_length;
    base.vocab_size = static_cast<int64_t>(kRandomClasses + random() % 12);
    base.learned_positions = !one_in(3);
    base.tied = one_in(2);
    base.init_std = 0.4F;
    const int layers = static_cast<int>(1 + random() % static_cast<uint64_t>(most_layers));
    const bool embeds = !one_in(4), has_output = one_in(2);
    std::ostringstream description;
    const auto composed_to = [=](std::ostream* log, int* results) {
        return [=](ModelGraph& g) {
            Composer composer(g, seed, layers, log);
            composer.compose(embeds, has_output);
            if (results != nullptr) *results = composer.results();
        };
    };
    RandomGraph made;
    static_cast<void>(model_of(composed_to(&description, &made.results), base));
    made.config = model_of(composed_to(nullptr, nullptr), base);
    made.description = "h=" + std::to_string(base.hidden_size) +
                       " s=" + std::to_string(base.seq_length) + "\n" + description.str();
    return made;
}

RandomGraphBatch::RandomGraphBatch(const ModelConfig& config, int microbatches, int64_t sequences,
                                   uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto n = static_cast<size_t>(sequences * config.seq_length);
    const size_t size = n * static_cast<size_t>(microbatches);
    for (size_t i = 0; i < size; ++i) {
        tokens_.push_back(
            static_cast<int32_t>(random() % static_cast<uint64_t>(config.vocab_size)));
        const bool counts = i == 0 || random() % 5 > 0;
        labels_.push_back(counts ? static_cast<int32_t>(random() % kRandomClasses) : -1);
        const auto weight = static_cast<float>(1 + random() % 3);
        weights_.push_back(counts ? weight / static_cast<float>(2 * size) : 0.0F);
        counted_ += counts ? 1 : 0;
        const auto token = static_cast<int32_t>(i % static_cast<size_t>(config.seq_length));
        const bool begins = token == 0 || random() % 4 == 0;
        first_visible_.push_back(begins ? token : first_visible_.back());
    }
    for (size_t i = 0; i < size * kRandomColumns; ++i) {
        columns_.push_back(static_cast<float>(random() % 1000) / 500 - 1);
    }
    for (int j = 0; j < microbatches; ++j) {
        const size_t first = n * static_cast<size_t>(j);
        microbatches_.push_back(
            {.index = j,
             .sequences = sequences,
             .seq_length = config.seq_length,
             .tokens = std::span(tokens_).subspan(first, n),
             .labels = std::span(labels_).subspan(first, n),
             .loss_gradient = std::span(weights_).subspan(first, n),
             .first_visible = std::span(first_visible_).subspan(first, n),
             .columns = std::span(columns_).subspan(first * kRandomColumns, n * kRandomColumns)});
    }
}

}  // namespace vocabpipe::testing
