// SPDX-License-Identifier: Apache-2.0
// Runs the passes of one sublayer, with every combination of norms, and compares them with the same
// in double.
#pragma once

#include "src/model/blocks/sublayer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "src/model/rotary_tables.hpp"
#include "tests/model/fp64_operators.hpp"
#include "tests/model/model_run.hpp"

namespace vocabpipe::testing::sublayers {

using fp64::GradientSink;
using fp64::Rows;
using fp64::Vector;

inline constexpr int64_t kSequences = 2, kLength = 5, kTokens = kSequences * kLength;
inline constexpr int64_t kHidden = 12, kFfn = 20, kHeadSize = 6;
inline constexpr float kEpsilon = 1e-3F;
inline constexpr double kTheta = 100;  // turns also the slow dimensions within a short sequence

inline Rows norm64(const NormOptions& o, const Rows& x, const Tensors& w) {
    const Vector& gamma = w.at(o.name + ".weight");
    if (o.kind == Normalization::layer_norm) {
        return fp64::layer_norm(x, gamma, w.at(o.name + ".bias"), o.epsilon);
    }
    Rows y = x;
    for (Vector& row : y) fp64::RmsNorm{gamma, o.weight_offset, o.epsilon}.forward(row.data());
    return y;
}

inline Rows norm64_gradient(const NormOptions& o, const Rows& dy, const Rows& x, const Tensors& w,
                            GradientSink& sink) {
    const Vector& gamma = w.at(o.name + ".weight");
    if (o.kind == Normalization::layer_norm) {
        return fp64::layer_norm_gradient(dy, x, gamma, o.epsilon, o.name, sink);
    }
    Rows dx = dy;
    Vector dgamma(gamma.size(), 0.0);
    for (size_t n = 0; n < x.size(); ++n) {
        fp64::RmsNorm{gamma, o.weight_offset, o.epsilon}.gradient(dx[n].data(), x[n].data(),
                                                                  dgamma);
    }
    sink.add(o.name + ".weight", dgamma);
    return dx;
}

inline Rows linear64(const LinearFiles& files, bool bias, const Rows& x, const Tensors& w) {
    return fp64::linear(x, w.at(files.name + ".weight"),
                        bias ? w.at(files.name + ".bias") : Vector());
}

inline Rows linear64_gradient(const LinearFiles& files, bool bias, const Rows& dy, const Rows& x,
                              const Tensors& w, GradientSink& sink) {
    return fp64::linear_gradient(dy, x, w.at(files.name + ".weight"), files.name, bias, sink);
}

/// The options of one block, also where they choose it among several.
template <class Wanted>
const Wanted& chosen(const Wanted& options) {
    return options;
}
template <class Wanted, class... Options>
const Wanted& chosen(const std::variant<Options...>& options) {
    return std::get<Wanted>(options);
}

/// What a sublayer reads, and what its passes make of it.
struct Values {
    Rows x, residual, dout, dresidual;
    Rows out = {}, dx = {};
    Tensors gradients = {};
};

template <class Block64, class Options>
void run64(const SublayerOptions<Options>& o, const Tensors& w, Values& v) {
    GradientSink sink(&v.gradients);
    Block64 block{chosen<typename Block64::Options>(o.block), w};
    const Rows made = block.forward(o.norm ? norm64(*o.norm, v.x, w) : v.x);
    v.out = fp64::sum(v.residual, o.post_norm ? norm64(*o.post_norm, made, w) : made);
    Rows d = o.post_norm ? norm64_gradient(*o.post_norm, v.dout, made, w, sink) : v.dout;
    d = block.gradient(d, sink);
    v.dx = fp64::sum(v.dresidual, o.norm ? norm64_gradient(*o.norm, d, v.x, w, sink) : d);
}

inline std::vector<float> flat(const Rows& rows) {
    std::vector<float> values;
    for (const Vector& row : rows) values.insert(values.end(), row.begin(), row.end());
    return values;
}

inline double error_of(const std::vector<float>& actual, const Rows& expected) {
    Vector values;
    for (const Vector& row : expected) values.insert(values.end(), row.begin(), row.end());
    return relative_error(actual, values);
}

struct How {
    Recompute recompute = Recompute::none;
    bool split = false;
    bool accumulate = false;
};

/// Parameters with random values and memory for all that the passes of one sublayer leave.
template <Block Inner>
class SublayerRun {
public:
    using Options = SublayerOptions<typename Inner::Options>;

    SublayerRun(const Options& options, std::mt19937_64& random) : options_(options) {
        ParameterList list;
        Sublayer<Inner>(options, list);
        std::normal_distribution<float> noise(0, 0.3F);
        for (const LogicalParameter& of : list.take()) {
            const auto size = static_cast<size_t>(of.rows * of.cols);
            std::vector<float>& weight = memory_.emplace_back(size);
            for (float& value : weight) value = of.init_constant + noise(random);
            weights[of.name].assign(weight.begin(), weight.end());
            std::vector<float>& gradient = memory_.emplace_back(size);
            Parameter& p = held_.emplace_back();
            p.name = of.name;
            p.weight = p.master = Tensor(weight.data(), of.rows, of.cols, DType::fp32);
            p.gradient = Tensor(gradient.data(), of.rows, of.cols, DType::fp32);
        }
    }

    void expect(const Values& v, const How& how) {
        HeldParameters parameters(held_);
        const Sublayer<Inner> block(options_, parameters);
        Views counted_saved, counted_recomputed, counted_gradients;
        saved_views(block, how, counted_saved, counted_recomputed);
        gradient_views(block, counted_gradients);
        const DeviceMemory saved_memory = nan_memory(counted_saved.used());
        const DeviceMemory recomputed_memory = nan_memory(counted_recomputed.used());
        const DeviceMemory gradient_memory = nan_memory(counted_gradients.used());
        Views saved_bytes(saved_memory.bytes()), recomputed_bytes(recomputed_memory.bytes());
        Views gradient_bytes(gradient_memory.bytes());
        const auto saved = saved_views(block, how, saved_bytes, recomputed_bytes);
        const auto gradients = gradient_views(block, gradient_bytes);

        const ScratchSize size = block.scratch({.operators = ctx_.operators(),
                                                .sequences = kSequences,
                                                .seq_length = kLength,
                                                .dtype = DType::fp32,
                                                .threads = 1});
        const DeviceMemory rows =
            nan_memory(kTokens * std::max(size.columns, size.own_columns) * size_of(DType::fp32));
        const DeviceMemory workspace = nan_memory(size.workspace);
        Microbatch microbatch;
        microbatch.sequences = kSequences;
        microbatch.seq_length = kLength;
        const StagePass pass{
            .ctx = ctx_,
            .microbatch = microbatch,
            .rotary = &rotary_,
            .recompute = how.recompute,
            .scratch = {.rows = Tensor(rows.data(), kTokens, size.columns, DType::fp32),
                        .workspace = workspace.bytes()},
            .weight_gradients = {.accumulate = how.accumulate, .with_input = !how.split}};

        std::vector<float> x = flat(v.x), residual = flat(v.residual), out(x.size());
        std::vector<float> dout = flat(v.dout), dresidual = flat(v.dresidual), dx(x.size());
        const auto tensor = [](std::vector<float>& values) {
            return Tensor(values.data(), kTokens, kHidden, DType::fp32);
        };
        constexpr float kBefore = 0.25F;  // in every gradient
        for (Parameter& p : held_) {
            std::fill_n(p.gradient.as<float>(), p.gradient.size(), how.accumulate ? kBefore : NAN);
        }
        block.forward(pass, tensor(x), tensor(residual), saved, tensor(out));
        if (how.recompute == Recompute::selective) {
            EXPECT_GT(recomputed_memory.size(), 0U);
            std::ranges::fill(recomputed_memory.bytes(), std::byte{0xff});
            block.recompute(pass, tensor(x), saved);
        }
        block.backward_input(pass, tensor(dout), tensor(x), saved, gradients, tensor(dresidual),
                             tensor(dx));
        block.backward_weight(pass, tensor(dout), tensor(x), saved, gradients);

        constexpr double kBound = 1e-5;  // fp32 sums of up to 40 products
        EXPECT_LT(error_of(out, v.out), kBound);
        EXPECT_LT(error_of(dx, v.dx), kBound);
        EXPECT_EQ(v.gradients.size(), held_.size());
        for (const Parameter& p : held_) {
            Vector expected = v.gradients.at(p.name);
            for (double& value : expected) value += how.accumulate ? kBefore : 0;
            const float* const actual = p.gradient.as<float>();
            EXPECT_LT(relative_error({actual, actual + p.gradient.size()}, expected), kBound)
                << p.name;
        }
    }

    Tensors weights;

private:
    static auto saved_views(const Sublayer<Inner>& block, const How& how, Views& saved,
                            Views& recomputed) {
        const bool apart = how.recompute == Recompute::selective;
        SavedViews views{.costly = {saved, kTokens, DType::fp32},
                         .cheap = {apart ? recomputed : saved, kTokens, DType::fp32}};
        return block.saved_views(views);
    }
    static auto gradient_views(const Sublayer<Inner>& block, Views& memory) {
        TokenViews views(memory, kTokens, DType::fp32);
        return block.gradient_views(views);
    }
    DeviceMemory nan_memory(int64_t bytes) {
        DeviceMemory memory = device_->allocate(static_cast<uint64_t>(bytes), "a test's memory");
        std::ranges::fill(memory.bytes(), std::byte{0xff});
        return memory;
    }
    static ModelConfig rotary_config() {
        ModelConfig config;
        config.num_layers = 1;
        config.kv_channels = kHeadSize;
        config.seq_length = kLength;
        config.learned_positions = false;
        config.rope.theta = kTheta;
        return config;
    }

    std::unique_ptr<Device> device_ = make_host_device();
    Context ctx_{{.threads = 1, .poll = {}, .operators = &device_->operators()}};
    RotaryTables rotary_{*device_, rotary_config(), ContextCut(rotary_config().seq_length),
                         "a test"};
    Options options_;
    std::deque<std::vector<float>> memory_;
    std::vector<Parameter> held_;
};

inline std::vector<std::optional<NormOptions>> norms(const std::string& name) {
    const NormOptions rms{.name = name,
                          .kind = Normalization::rms_norm,
                          .size = kHidden,
                          .epsilon = kEpsilon,
                          .weight_offset = 1};
    NormOptions layer = rms;
    layer.kind = Normalization::layer_norm;
    layer.weight_offset = 0;
    return {std::nullopt, rms, layer};
}

inline Rows random_rows(std::mt19937_64& random) {
    std::normal_distribution<float> values;
    Rows rows(static_cast<size_t>(kTokens), Vector(static_cast<size_t>(kHidden)));
    for (Vector& row : rows) {
        for (double& value : row) value = values(random);
    }
    return rows;
}

/// With and without norms of either kind, before and after the block. `has_cheap_tensors`: whether
/// the block has some by itself.
template <Block Inner, class Block64>
void expect_with_all_norms(const typename Inner::Options& block, bool has_cheap_tensors = true) {
    std::mt19937_64 random(7);
    for (const std::optional<NormOptions>& norm : norms("norm")) {
        for (const std::optional<NormOptions>& post_norm : norms("post_norm")) {
            SCOPED_TRACE(::testing::Message()
                         << "norm " << (norm ? static_cast<int>(norm->kind) : -1) << ", post norm "
                         << (post_norm ? static_cast<int>(post_norm->kind) : -1));
            const SublayerOptions<typename Inner::Options> options{
                .norm = norm, .block = block, .post_norm = post_norm};
            SublayerRun<Inner> run(options, random);
            // The residual is another tensor than x, as with parallel residuals.
            Values values{.x = random_rows(random),
                          .residual = random_rows(random),
                          .dout = random_rows(random),
                          .dresidual = random_rows(random)};
            run64<Block64>(options, run.weights, values);
            run.expect(values, {});
            run.expect(values, {.accumulate = true});
            run.expect(values, {.split = true});
            run.expect(values, {.split = true, .accumulate = true});
            if (norm || has_cheap_tensors) {
                run.expect(values, {.recompute = Recompute::selective});
            }
        }
    }
}

}  // namespace vocabpipe::testing::sublayers
