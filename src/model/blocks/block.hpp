// SPDX-License-Identifier: Apache-2.0
// What a Sublayer requires of the block between its norms.
#pragma once

#include "src/model/blocks/block_work.hpp"
#include "src/model/blocks/stage_pass.hpp"
#include "src/model/blocks/token_views.hpp"
#include "src/model/parameter_source.hpp"
#include "vocabpipe/tensor.hpp"

#include <concepts>
#include <cstdint>
#include <variant>

namespace vocabpipe {

/// h, of the options of a block, or of one of several blocks.
template <class Options>
[[nodiscard]] int64_t hidden_size_of(const Options& options) {
    return options.hidden_size;
}
template <class... Options>
[[nodiscard]] int64_t hidden_size_of(const std::variant<Options...>& options) {
    return std::visit([](const auto& of) { return hidden_size_of(of); }, options);
}

/// A block of a layer, (N/t, h) to (N/t, h), with the functions that Attention describes. It lays
/// out its tensors, Saved and Gradients, in memory that it is given, and says what scratch its
/// passes need and what they compute: nothing else knows them.
template <class T>
concept Block = std::constructible_from<T, const typename T::Options&, ParameterSource&> &&
    requires(const T& block, const typename T::Options& options, const typename T::Saved& saved,
             const typename T::Gradients& gradients, SavedViews& saved_views, TokenViews& views,
             const ScratchFor& use, const StagePass& pass, ConstTensor in, Tensor out) {
    { hidden_size_of(options) } -> std::same_as<int64_t>;
    { block.saved_views(saved_views) } -> std::same_as<typename T::Saved>;
    { block.gradient_views(views) } -> std::same_as<typename T::Gradients>;
    { block.scratch(use) } -> std::same_as<ScratchSize>;
    { block.forward(pass, in, saved, in, out) } -> std::same_as<void>;
    { block.recompute(pass, in, saved) } -> std::same_as<void>;
    { block.backward_input(pass, in, in, saved, gradients, out) } -> std::same_as<void>;
    { block.backward_weight(pass, in, in, saved, gradients) } -> std::same_as<void>;
    { block.work(int64_t{}) } -> std::same_as<BlockWork>;
};

}  // namespace vocabpipe
