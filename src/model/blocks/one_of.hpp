// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/block.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

namespace vocabpipe {

/// One of several blocks, which its options choose; itself a block. Saved and Gradients are those
/// of the chosen one.
template <Block... Blocks>
class OneOf {
public:
    using Options = std::variant<typename Blocks::Options...>;
    using Saved = std::variant<typename Blocks::Saved...>;
    using Gradients = std::variant<typename Blocks::Gradients...>;

    OneOf(const Options& options, ParameterSource& parameters)
        : block_(make(options, parameters, std::index_sequence_for<Blocks...>())) {}

    [[nodiscard]] Saved saved_views(SavedViews& views) const {
        return with_block([&](const auto& block, auto at) {
            return Saved(std::in_place_index<at>, block.saved_views(views));
        });
    }
    [[nodiscard]] Gradients gradient_views(TokenViews& views) const {
        return with_block([&](const auto& block, auto at) {
            return Gradients(std::in_place_index<at>, block.gradient_views(views));
        });
    }
    [[nodiscard]] ScratchSize scratch(const ScratchFor& use) const {
        return with_block([&](const auto& block, auto) { return block.scratch(use); });
    }
    void forward(const StagePass& pass, ConstTensor x, const Saved& saved, ConstTensor residual,
                 Tensor out) const {
        with_block([&](const auto& block, auto at) {
            block.forward(pass, x, std::get<at>(saved), residual, out);
        });
    }
    void recompute(const StagePass& pass, ConstTensor x, const Saved& saved) const {
        with_block(
            [&](const auto& block, auto at) { block.recompute(pass, x, std::get<at>(saved)); });
    }
    void backward_input(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                        const Gradients& gradients, Tensor dx) const {
        with_block([&](const auto& block, auto at) {
            block.backward_input(pass, dy, x, std::get<at>(saved), std::get<at>(gradients), dx);
        });
    }
    void backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                         const Gradients& gradients) const {
        with_block([&](const auto& block, auto at) {
            block.backward_weight(pass, dy, x, std::get<at>(saved), std::get<at>(gradients));
        });
    }
    [[nodiscard]] BlockWork work(int64_t seq_length) const {
        return with_block([&](const auto& block, auto) { return block.work(seq_length); });
    }

private:
    using AnyBlock = std::variant<Blocks...>;

    /// The block whose options are chosen.
    template <size_t... kAt>
    static AnyBlock make(const Options& options, ParameterSource& parameters,
                         std::index_sequence<kAt...>) {
        std::optional<AnyBlock> made;
        const auto make_if = [&](auto at) {
            if (options.index() == at) {
                made.emplace(std::in_place_index<at>, std::get<at>(options), parameters);
            }
        };
        (make_if(std::integral_constant<size_t, kAt>()), ...);
        return *std::move(made);
    }
    /// Returns use(the block, its index in the list of blocks), the index as a type.
    template <size_t kAt = 0, class Use>
    auto with_block(const Use& use) const {
        if constexpr (kAt + 1 < sizeof...(Blocks)) {
            if (block_.index() != kAt) return with_block<kAt + 1>(use);
        }
        return use(std::get<kAt>(block_), std::integral_constant<size_t, kAt>());
    }

    AnyBlock block_;
};

}  // namespace vocabpipe
