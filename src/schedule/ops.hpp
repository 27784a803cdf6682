// SPDX-License-Identifier: Apache-2.0
// One row for every action and every pass, with the properties that lowering, costs, proof, names,
// executor and transports need. To add one, write a row here, an operand struct, the code that
// lowers it and the code that runs it.
#pragma once

#include "src/schedule/operands.hpp"
#include "vocabpipe/cost_model.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace vocabpipe {

/// Kind of an action; decides its cost: pass_ns, local_ns or transfer_ns. Only communication
/// involves several ranks.
enum class ActionKind : uint8_t { pass, local, communication };

/// The rank that an action's name mentions.
enum class NamedPeer : uint8_t { none, to_last, from_first, to_root, from_root };

/// How often a member sends its bytes.
enum class Volume : uint8_t {
    once,       ///< one message
    per_peer,   ///< a part of a gathered whole: the busiest member moves one for each peer
    by_blocks,  ///< cut into a block for each member, the own one stays
};

/// Which buffer of a transfer is cut into the members' blocks.
enum class Blocks : uint8_t {
    none,
    of_sent,      ///< rows of the reduction's partial type
    of_received,  ///< rows of the reduction's result type
};

/// The total size of all members' received buffers, for the proof.
enum class Received : uint8_t {
    unchecked,          ///< members may keep what they sent, or there is one message
    one_part,           ///< one, at the root, as large as one member's
    every_part,         ///< each part once
    every_part_at_all,  ///< each part at every member
};

/// Properties of a kind of action.
struct ActionTraits {
    Do what = Do::pass;
    std::string_view name;
    ActionKind kind = ActionKind::communication;
    Lane lane = Lane::collective;  ///< messages between stages have the lane of their direction
    NamedPeer peer = NamedPeer::none;
    bool of_sum = false;  ///< part of a sum: its name says what is added, not what moves

    // --- of communication ---
    bool point_to_point = false;  ///< from the first rank of its group to the second
    /// Null: one message on every transport.
    CollectiveAlgorithm CollectiveAlgorithms::*algorithm = nullptr;
    Volume volume = Volume::once;
    bool reaches_all = false;  ///< a member's data go to every other one
    Blocks blocks = Blocks::none;
    bool even = true;  ///< every member sends equally much
    Received received = Received::unchecked;

    // --- made of the operand struct ---
    size_t operands = 0;     ///< how many an action always has
    SentAndReceived places;  ///< indices of sent and received among the operands
};

namespace detail {

struct OfThePass {};  ///< a pass has the operands of its PassRow

template <typename Struct>
struct ActionRow {
    using Operands = Struct;
    ActionTraits traits;

    constexpr explicit ActionRow(ActionTraits of) : traits(of) {
        if constexpr (!std::is_same_v<Struct, OfThePass>) {
            static_assert(vocabpipe::Operands<Struct>);
            traits.operands = kAlwaysStored<Struct>;
        }
        if constexpr (requires(Struct s) { s.moved(); }) {
            constexpr std::array<uint32_t, kMostOperands> numbers{0, 1, 2, 3, 4, 5, 6, 7};
            traits.places = read_operands<Struct>(numbers).moved();
        }
    }
};

// clang-format off
inline constexpr std::tuple kActionRows{
    ActionRow<OfThePass>({
        .what = Do::pass, .name = "pass", .kind = ActionKind::pass, .lane = Lane::compute}),
    ActionRow<SendOperands>({
        .what = Do::send, .name = "send", .peer = NamedPeer::to_last, .point_to_point = true}),
    ActionRow<ReceiveOperands>({
        .what = Do::receive, .name = "receive", .peer = NamedPeer::from_first,
        .point_to_point = true}),
    ActionRow<BroadcastOperands>({
        .what = Do::broadcast, .name = "broadcast", .peer = NamedPeer::from_root,
        .algorithm = &CollectiveAlgorithms::broadcast, .reaches_all = true}),
    ActionRow<AllGatherOperands>({
        .what = Do::all_gather, .name = "all_gather",
        .algorithm = &CollectiveAlgorithms::all_gather, .volume = Volume::per_peer,
        .reaches_all = true, .received = Received::every_part_at_all}),
    ActionRow<AllToAllOperands>({
        .what = Do::all_to_all, .name = "all_to_all", .of_sum = true,
        .algorithm = &CollectiveAlgorithms::all_to_all, .volume = Volume::by_blocks,
        .blocks = Blocks::of_sent, .received = Received::every_part}),
    ActionRow<GatherOperands>({
        .what = Do::gather, .name = "gather", .peer = NamedPeer::to_root, .of_sum = true,
        .algorithm = &CollectiveAlgorithms::gather, .volume = Volume::per_peer,
        .blocks = Blocks::of_received, .even = false, .received = Received::every_part}),
    ActionRow<GatherOperands>({
        .what = Do::all_gather_v, .name = "all_gather_v",
        .algorithm = &CollectiveAlgorithms::all_gather, .volume = Volume::per_peer,
        .reaches_all = true, .blocks = Blocks::of_received, .even = false,
        .received = Received::every_part_at_all}),
    ActionRow<CombineSoftmaxOperands>({
        .what = Do::combine_softmax, .name = "combine_softmax", .kind = ActionKind::local,
        .lane = Lane::local}),
    ActionRow<OrderedSumOperands>({
        .what = Do::ordered_sum, .name = "ordered_sum", .kind = ActionKind::local,
        .lane = Lane::local, .of_sum = true}),
    // Priced as a gather, messages to one rank. NCCL's own reduction is faster, but none has been
    // measured.
    ActionRow<NativeReduceOperands>({
        .what = Do::reduce, .name = "reduce", .peer = NamedPeer::to_root, .of_sum = true,
        .algorithm = &CollectiveAlgorithms::gather, .volume = Volume::per_peer,
        .received = Received::one_part}),
};
// clang-format on

}  // namespace detail

inline constexpr auto kActions =
    std::apply([](const auto&... row) { return std::array{row.traits...}; }, detail::kActionRows);

[[nodiscard]] constexpr const ActionTraits& traits(Do what) {
    return kActions[static_cast<size_t>(what)];
}

/// Whether several ranks take part.
[[nodiscard]] constexpr bool is_communication(Do what) {
    return traits(what).kind == ActionKind::communication;
}

/// The kind under which both ends of a message are one transfer.
[[nodiscard]] constexpr Do transfer_kind(Do what) {
    return traits(what).point_to_point ? Do::send : what;
}

/// The buffers that a communication sends and receives; none for other actions.
[[nodiscard]] inline SentAndReceived moved(Do what, std::span<const uint32_t> operands) {
    const SentAndReceived& places = traits(what).places;
    const auto at = [&](uint32_t place) {
        return place < operands.size() ? operands[place] : kNoBuffer;
    };
    return {.sent = at(places.sent), .received = at(places.received)};
}

// --- passes --------------------------------------------------------------------------------------

/// The layer to whose weights' gradient a pass adds. The first pass of the step sets it, of stages
/// whose gradients ranks share the first one of each use.
enum class AddsTo : uint8_t { nothing, stage, input, output };

/// Properties of a kind of pass beyond those that schedules need (OpTraits).
struct PassTraits {
    Op op = Op::F;
    AddsTo adds_to = AddsTo::nothing;
    bool reads_stage = false;  ///< the weights of a stage, in every model
    size_t operands = 0;       ///< how many it has, those included that are not always stored
};

namespace detail {

template <typename Struct>
struct PassRow {
    static_assert(vocabpipe::Operands<Struct>);
    using Operands = Struct;
    PassTraits traits;

    constexpr explicit PassRow(PassTraits of) : traits(of) {
        traits.operands = kOperandCount<Struct>;
    }
};

inline constexpr std::tuple kPassRows{
    PassRow<ForwardOperands>({.op = Op::F, .reads_stage = true}),
    PassRow<BackwardOperands>({.op = Op::B, .adds_to = AddsTo::stage, .reads_stage = true}),
    PassRow<InputBackwardOperands>({.op = Op::I, .reads_stage = true}),
    PassRow<WeightBackwardOperands>({.op = Op::W, .adds_to = AddsTo::stage}),
    PassRow<RecomputeOperands>({.op = Op::R, .reads_stage = true}),
    PassRow<EmbedOperands>({.op = Op::E}),
    PassRow<EmbedGradientOperands>({.op = Op::G, .adds_to = AddsTo::input}),
    PassRow<ScoreOperands>({.op = Op::S}),
    PassRow<OutputBackwardOperands>({.op = Op::T, .adds_to = AddsTo::output}),
    PassRow<ReduceTiedOperands>({.op = Op::Reduce}),
    PassRow<ReportOperands>({.op = Op::Report}),
    PassRow<UpdateOperands>({.op = Op::Update}),
};

}  // namespace detail

inline constexpr auto kPasses =
    std::apply([](const auto&... row) { return std::array{row.traits...}; }, detail::kPassRows);

[[nodiscard]] constexpr const PassTraits& pass_traits(Op op) {
    return kPasses[static_cast<size_t>(op)];
}

// --- operands by action and by pass --------------------------------------------------------------

namespace detail {

template <auto what>
struct OperandsOf;
template <Do what>
struct OperandsOf<what> {
    using type =
        typename std::tuple_element_t<static_cast<size_t>(what), decltype(kActionRows)>::Operands;
};
template <Op op>
struct OperandsOf<op> {
    using type =
        typename std::tuple_element_t<static_cast<size_t>(op), decltype(kPassRows)>::Operands;
};

constexpr bool rows_follow_their_enums() {
    for (size_t i = 0; i < kActions.size(); ++i) {
        if (static_cast<size_t>(kActions[i].what) != i) return false;
    }
    for (size_t i = 0; i < kPasses.size(); ++i) {
        if (static_cast<size_t>(kPasses[i].op) != i) return false;
    }
    return kPasses.size() == kOpTraits.size();
}
static_assert(rows_follow_their_enums());

}  // namespace detail

/// OperandsOf<Do::gather>, OperandsOf<Op::F>.
template <auto what>
using OperandsOf = typename detail::OperandsOf<what>::type;

/// The operands of an action, or of a pass, of a program.
template <auto what>
[[nodiscard]] OperandsOf<what> operands_of(const Program& program, const Action& action) {
    return read_operands<OperandsOf<what>>(program.operands_of(action));
}

}  // namespace vocabpipe
