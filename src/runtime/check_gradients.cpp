// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/check_gradients.hpp"

#include "vocabpipe/context.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/tensor.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

[[noreturn]] void refuse(const std::string& what) {
    throw Error(ExitCode::wrong_values, "check_gradients: " + what);
}

/// Memory of a pass, aligned as the arena's buffers are, with bytes behind it that must not change.
class GuardedBytes {
public:
    GuardedBytes(std::string name, int64_t count)
        : name_(std::move(name)),
          count_(static_cast<size_t>(count)),
          memory_(static_cast<std::byte*>(
              ::operator new (count_ + kGuard, std::align_val_t{kAlignment}))) {
        poison();
        std::memset(memory_.get() + count_, kBehind, kGuard);
    }

    [[nodiscard]] Bytes bytes() const { return {memory_.get(), count_}; }
    /// Numbers that are none, so that what is read before it was written shows.
    void poison() const { std::memset(memory_.get(), 0xff, count_); }
    /// Throws if something was written behind it in `pass`.
    void check(const char* pass) const {
        const std::byte* const end = memory_.get() + count_ + kGuard;
        const auto changed = [](std::byte one) { return one != std::byte{kBehind}; };
        if (std::none_of(end - kGuard, end, changed)) return;
        refuse(std::string(pass) + " writes behind the " + std::to_string(count_) + " bytes of " +
               name_ + " that bytes() asks for");
    }

private:
    static constexpr size_t kAlignment = 64, kGuard = 256;
    static constexpr unsigned char kBehind = 0x5a;
    struct Free {
        void operator()(std::byte* memory) const {
            ::operator delete (memory, std::align_val_t{kAlignment});
        }
    };

    std::string name_;
    size_t count_;
    std::unique_ptr<std::byte[], Free> memory_;
};

using Numbers = std::vector<float>;

double length(std::span<const double> values) {
    double sum = 0;
    for (const double value : values) sum += value * value;
    return std::sqrt(sum);
}

/// The elements of an fp32 tensor, row by row.
Numbers values_of(ConstTensor tensor) {
    Numbers values;
    for (int64_t row = 0; row < tensor.rows; ++row) {
        const float* const from = tensor.as<float>() + row * tensor.stride;
        values.insert(values.end(), from, from + tensor.cols);
    }
    return values;
}

void set_values(Tensor tensor, std::span<const float> values) {
    for (int64_t row = 0; row < tensor.rows; ++row) {
        std::copy_n(values.data() + row * tensor.cols, tensor.cols,
                    tensor.as<float>() + row * tensor.stride);
    }
}

/// |a - b| / |b|; 0 where both are 0.
double relative_error(const Numbers& a, const Numbers& b) {
    std::vector<double> difference, expected(b.begin(), b.end());
    for (size_t i = 0; i < a.size(); ++i) difference.push_back(double{a[i]} - double{b[i]});
    const double error = length(difference);
    return error == 0 ? 0 : error / length(expected);
}

/// A microbatch of random tokens and the stage's passes over it.
class StageRun {
public:
    StageRun(StageModule& stage, const GradientCheckOptions& options)
        : stage_(stage),
          options_(options),
          bytes_(stage.bytes()),
          context_({.threads = options.threads, .poll = {}}),
          random_(options.seed),
          saved_("saved", bytes_.saved),
          recomputed_("recomputed", bytes_.recomputed),
          for_weight_("for_weight", bytes_.for_weight),
          forward_("forward_workspace", bytes_.forward_workspace),
          backward_("backward_workspace", bytes_.backward_workspace),
          input_gradient_("input_gradient_workspace", bytes_.input_gradient_workspace),
          weight_gradient_("weight_gradient_workspace", bytes_.weight_gradient_workspace) {
        const auto tokens = static_cast<size_t>(options.sequences * options.seq_length);
        for (size_t n = 0; n < tokens; ++n) {
            tokens_.push_back(
                static_cast<int32_t>(random_() % static_cast<uint64_t>(options.vocab_size)));
        }
        labels_.assign(tokens, -1);
        weights_.assign(tokens, 0);
        const size_t elements = tokens * static_cast<size_t>(options.hidden_size);
        x_ = normal(elements);
        r_ = normal(elements);
        y_.resize(elements);
        dx_.resize(elements);
        for (Parameter& parameter : stage.parameters()) {
            if (!parameter.gradient) continue;
            if (parameter.weight.dtype != DType::fp32) {
                throw UsageError("check_gradients: weight " + parameter.name +
                                 " is not fp32; check the stage in fp32");
            }
            trained_.push_back(&parameter);
        }
    }

    [[nodiscard]] Tensor input() { return rows(x_); }
    [[nodiscard]] const Numbers& input_gradient() const { return dx_; }
    [[nodiscard]] std::span<Parameter* const> trained() const { return trained_; }
    [[nodiscard]] Numbers normal(size_t count) {
        std::normal_distribution<float> draw;
        Numbers values(count);
        for (float& value : values) value = draw(random_);
        return values;
    }

    void forward() {
        forward_.poison();
        std::ranges::fill(y_, NAN);
        stage_.forward(context_, microbatch(), rows(x_), rows(y_), activations(), forward_.bytes());
        check_all("F");
    }
    /// R must restore the bits that F left.
    void recompute() {
        if (bytes_.recomputed == 0) return;
        const GuardedBytes left("recomputed", bytes_.recomputed);
        std::ranges::copy(recomputed_.bytes(), left.bytes().begin());
        recomputed_.poison();
        forward_.poison();
        stage_.recompute(context_, microbatch(), rows(x_), activations(), forward_.bytes());
        check_all("R");
        if (!std::ranges::equal(left.bytes(), recomputed_.bytes())) {
            refuse("R does not restore the bits of the recomputed activations that F left");
        }
    }
    void backward(bool accumulate) {
        keep_input([&] {
            backward_.poison();
            stage_.backward(context_, microbatch(), rows(r_), rows(x_), activations(), rows(dx_),
                            backward_.bytes(), accumulate);
            check_all("B");
        });
    }
    void backward_input() {
        keep_input([&] {
            for_weight_.poison();
            input_gradient_.poison();
            stage_.backward_input(context_, microbatch(), rows(r_), rows(x_), activations(),
                                  rows(dx_), for_weight_.bytes(), input_gradient_.bytes());
            check_all("I");
        });
    }
    void backward_weight(bool accumulate) {
        weight_gradient_.poison();
        stage_.backward_weight(context_, microbatch(), rows(x_), activations(), for_weight_.bytes(),
                               weight_gradient_.bytes(), accumulate);
        check_all("W");
    }
    /// Sum of r y.
    [[nodiscard]] double value() {
        forward();
        double sum = 0;
        for (size_t i = 0; i < y_.size(); ++i) sum += double{r_[i]} * double{y_[i]};
        return sum;
    }

private:
    [[nodiscard]] Tensor rows(Numbers& values) const {
        return {values.data(), std::ssize(tokens_), options_.hidden_size, DType::fp32};
    }
    [[nodiscard]] Microbatch microbatch() const {
        return {.sequences = options_.sequences,
                .seq_length = options_.seq_length,
                .tokens = tokens_,
                .labels = labels_,
                .loss_gradient = weights_};
    }
    [[nodiscard]] Activations activations() const {
        return {.saved = saved_.bytes(), .recomputed = recomputed_.bytes()};
    }
    void check_all(const char* pass) const {
        for (const GuardedBytes* memory : {&saved_, &recomputed_, &for_weight_, &forward_,
                                           &backward_, &input_gradient_, &weight_gradient_}) {
            memory->check(pass);
        }
    }
    /// W comes after I of other microbatches, but reads its own input.
    void keep_input(const std::function<void()>& pass) {
        const Numbers before = x_;
        std::ranges::fill(dx_, NAN);
        pass();
        if (before != x_) refuse("B or I changes the stage's input, which W still reads");
    }

    StageModule& stage_;
    GradientCheckOptions options_;
    StageBytes bytes_;
    Context context_;
    std::mt19937_64 random_;
    GuardedBytes saved_, recomputed_, for_weight_, forward_, backward_, input_gradient_,
        weight_gradient_;
    std::vector<int32_t> tokens_, labels_;
    Numbers weights_, x_, r_, y_, dx_;
    std::vector<Parameter*> trained_;
};

/// The gradients of all trained parameters, one after the other, and of the input.
struct Gradients {
    std::vector<Numbers> parameters;
    Numbers input;
};
Gradients gradients_of(const StageRun& run) {
    Gradients gradients{.parameters = {}, .input = run.input_gradient()};
    for (const Parameter* parameter : run.trained()) {
        gradients.parameters.push_back(values_of(parameter->gradient_of_layer()));
    }
    return gradients;
}

void expect_same(const StageRun& run, const Gradients& found, const Gradients& expected,
                 double bound, const std::string& what) {
    if (!(relative_error(found.input, expected.input) <= bound)) refuse(what + " of the input");
    for (size_t i = 0; i < found.parameters.size(); ++i) {
        if (relative_error(found.parameters[i], expected.parameters[i]) <= bound) continue;
        refuse(what + " of " + run.trained()[i]->name);
    }
}

/// Moves `tensor` along a direction and compares the rate with that of its gradient. Returns the
/// relative error.
double error_along_gradient(StageRun& run, Tensor tensor, const Numbers& gradient,
                            const std::string& name, const GradientCheckOptions& options) {
    const Numbers before = values_of(tensor);
    const std::vector<double> g(gradient.begin(), gradient.end());
    const std::vector<double> start(before.begin(), before.end());
    const double slope = length(g), size = length(start);
    const Numbers noise = run.normal(before.size());
    std::vector<double> u(noise.begin(), noise.end());
    const double scale = 1 / length(u);
    for (size_t i = 0; i < u.size(); ++i) {
        u[i] = u[i] * scale + (slope > 0 ? g[i] / slope : 0);
    }
    const double normed = 1 / length(u);
    double expected = 0;
    for (size_t i = 0; i < u.size(); ++i) expected += (u[i] *= normed) * g[i];
    // A tensor of zeros moves as far as one of ones.
    const double step =
        options.step * (size > 0 ? size : std::sqrt(static_cast<double>(before.size())));
    const auto value_at = [&](double way) {
        Numbers moved = before;
        for (size_t i = 0; i < moved.size(); ++i) {
            moved[i] = static_cast<float>(start[i] + way * step * u[i]);
        }
        set_values(tensor, moved);
        return run.value();
    };
    const double rate =
        (8 * (value_at(0.5) - value_at(-0.5)) - (value_at(1) - value_at(-1))) / (6 * step);
    set_values(tensor, before);
    const double error = std::abs(rate - expected);
    if (error == 0) return 0;
    const double relative = error / std::max(slope, std::abs(rate));
    if (relative <= options.bound) return relative;
    char text[160];
    std::snprintf(text, sizeof text,
                  ": grows at the rate %.6g, but the stage's gradient says %.6g (relative error "
                  "%.2g, bound %.2g)",
                  rate, expected, relative, options.bound);
    refuse("gradient of " + name + text);
}

}  // namespace

GradientCheck check_gradients(StageModule& stage, const GradientCheckOptions& options) {
    StageRun run(stage, options);
    run.forward();
    run.recompute();
    run.backward(false);
    const Gradients whole = gradients_of(run);
    // Both orders round alike or nearly so.
    constexpr double kRounding = 1e-4;
    run.forward();
    run.backward_input();
    run.backward_weight(false);
    expect_same(run, gradients_of(run), whole, kRounding, "I and W give another gradient than B");
    Gradients twice = whole;
    for (Numbers& numbers : twice.parameters) {
        for (float& number : numbers) number *= 2;
    }
    run.backward(true);
    expect_same(run, gradients_of(run), twice, kRounding, "B does not add to the gradient");
    run.backward(false);
    run.backward_input();
    run.backward_weight(true);
    expect_same(run, gradients_of(run), twice, kRounding, "W does not add to the gradient");

    GradientCheck worst;
    const auto add = [&](Tensor tensor, const Numbers& gradient, const std::string& name) {
        const double error = error_along_gradient(run, tensor, gradient, name, options);
        if (error >= worst.error) worst = {error, name};
    };
    add(run.input(), whole.input, "the input");
    for (size_t i = 0; i < whole.parameters.size(); ++i) {
        add(run.trained()[i]->weight, whole.parameters[i], run.trained()[i]->name);
    }
    return worst;
}

}  // namespace vocabpipe
