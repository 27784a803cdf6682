// SPDX-License-Identifier: Apache-2.0
// Profile files come back as they were written, and what does not fit is refused with its place.
#include "vocabpipe/profile.hpp"

#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

Profile some_profile() {
    Profile p;
    p.host = "node \"7\"";
    p.device = "host, 1 thread per rank";
    p.date = "2024-08-17";
    p.command = "vocabpipe profile --num-layers 5";
    p.model = {.layers = 5,
               .hidden = 16,
               .ffn_hidden = 64,
               .heads = 2,
               .seq_length = 8,
               .micro_batch_size = 2,
               .vocab = 53,
               .layers_per_stage = {2, 1, 1, 1}};
    p.rank_of_stage = {0, 1, 1, 0};
    p.input = ShardMap::even(53, 2);
    p.output = ShardMap::whole(53, 2, 1);
    p.barriers = Barriers::two;
    p.costs = TableCosts::uniform(2, 4, 1000, 2100, 40);
    p.costs.stage_ns[3][static_cast<size_t>(Op::F)] = int64_t{1} << 40;
    p.costs.stage_ns[2][static_cast<size_t>(Op::R)] = 78;
    p.costs.rank_ns[1][static_cast<size_t>(Op::Update)] = 77;
    p.costs.latency_ns = 900;
    p.costs.bytes_per_ns = 3.7;
    p.costs.local_bytes_per_ns = 1.0 / 3;
    p.costs.algorithms = {.broadcast = CollectiveAlgorithm::tree,
                          .all_gather = CollectiveAlgorithm::ring,
                          .gather = CollectiveAlgorithm::direct,
                          .all_to_all = CollectiveAlgorithm::linear};
    p.costs.slowdown_permille = 25;
    p.costs.fixed_ns = 12345;
    p.derived = {Op::I, Op::W};
    p.sizes.tokens = 16;
    p.sizes.hidden = 16;
    p.sizes.dtype = DType::bf16;
    p.sizes.tied = true;
    p.sizes.report_bytes = 320;
    p.sizes.stages.resize(4);
    p.sizes.stages[2] = {.saved = 1,
                         .recomputed = 13,
                         .for_weight = 2,
                         .forward_workspace = 3,
                         .backward_workspace = 4,
                         .input_gradient_workspace = 5,
                         .weight_gradient_workspace = 6};
    p.sizes.shards = {{}, {.exp_logits = 7, .score_workspace = 8, .weight_gradient_workspace = 9}};
    p.persistent = {{.weights = 10, .gradients = 11, .optimizer = 12}, {}};
    p.links = {{.what = Do::send, .ranks = 2, .bytes = 1 << 20, .ns = 300000},
               {.what = Do::all_gather, .ranks = 2, .bytes = 0, .ns = 1000}};
    return p;
}

std::string temporary(const std::string& name) {
    return (std::filesystem::path(::testing::TempDir()) / name).string();
}

/// The file's text for some_profile().
std::string some_text() {
    const std::string path = temporary("some_profile.json");
    write_profile(path, some_profile());
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

std::string refusal(const std::string& text) {
    try {
        (void)parse_profile(text, "p.json");
    } catch (const InputFileError& error) {
        return error.what();
    }
    return "accepted";
}

/// The refusal of some_profile() after `change`.
std::string refusal_after(const std::function<void(nlohmann::json&)>& change) {
    nlohmann::json document = nlohmann::json::parse(some_text());
    change(document);
    return refusal(document.dump());
}

void expect_equal(const StepSizes& a, const StepSizes& b) {
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.hidden, b.hidden);
    EXPECT_EQ(a.dtype, b.dtype);
    EXPECT_EQ(a.tied, b.tied);
    EXPECT_EQ(a.report_bytes, b.report_bytes);
    ASSERT_EQ(a.stages.size(), b.stages.size());
    for (size_t i = 0; i < a.stages.size(); ++i) {
        EXPECT_EQ(a.stages[i].saved, b.stages[i].saved);
        EXPECT_EQ(a.stages[i].for_weight, b.stages[i].for_weight);
        EXPECT_EQ(a.stages[i].forward_workspace, b.stages[i].forward_workspace);
        EXPECT_EQ(a.stages[i].backward_workspace, b.stages[i].backward_workspace);
        EXPECT_EQ(a.stages[i].input_gradient_workspace, b.stages[i].input_gradient_workspace);
        EXPECT_EQ(a.stages[i].weight_gradient_workspace, b.stages[i].weight_gradient_workspace);
    }
    ASSERT_EQ(a.shards.size(), b.shards.size());
    for (size_t i = 0; i < a.shards.size(); ++i) {
        EXPECT_EQ(a.shards[i].exp_logits, b.shards[i].exp_logits);
        EXPECT_EQ(a.shards[i].score_workspace, b.shards[i].score_workspace);
        EXPECT_EQ(a.shards[i].weight_gradient_workspace, b.shards[i].weight_gradient_workspace);
    }
}

TEST(Profile, ComesBackAsItWasWritten) {
    const std::string path = temporary("round_trip.json");
    const Profile written = some_profile();
    write_profile(path, written);
    const Profile read = read_profile(path);
    EXPECT_EQ(read.host, written.host);
    EXPECT_EQ(read.device, written.device);
    EXPECT_EQ(read.date, written.date);
    EXPECT_EQ(read.command, written.command);
    EXPECT_EQ(read.model, written.model);
    EXPECT_EQ(read.rank_of_stage, written.rank_of_stage);
    EXPECT_EQ(read.input, written.input);
    EXPECT_EQ(read.output, written.output);
    EXPECT_EQ(read.barriers, written.barriers);
    EXPECT_EQ(read.costs.stage_ns, written.costs.stage_ns);
    EXPECT_EQ(read.costs.rank_ns, written.costs.rank_ns);
    EXPECT_EQ(read.costs.latency_ns, written.costs.latency_ns);
    EXPECT_EQ(read.costs.bytes_per_ns, written.costs.bytes_per_ns);
    EXPECT_EQ(read.costs.local_bytes_per_ns, written.costs.local_bytes_per_ns);
    EXPECT_EQ(read.costs.algorithms.broadcast, written.costs.algorithms.broadcast);
    EXPECT_EQ(read.costs.algorithms.all_gather, written.costs.algorithms.all_gather);
    EXPECT_EQ(read.costs.algorithms.gather, written.costs.algorithms.gather);
    EXPECT_EQ(read.costs.algorithms.all_to_all, written.costs.algorithms.all_to_all);
    EXPECT_EQ(read.costs.slowdown_permille, written.costs.slowdown_permille);
    EXPECT_EQ(read.costs.fixed_ns, written.costs.fixed_ns);
    EXPECT_EQ(read.derived, written.derived);
    expect_equal(read.sizes, written.sizes);
    EXPECT_EQ(read.persistent, written.persistent);
    EXPECT_EQ(read.links, written.links);
}

TEST(Profile, WithoutAKeyIsRefusedWithTheKey) {
    const nlohmann::json whole = nlohmann::json::parse(some_text());
    for (const auto& [key, value] : whole.items()) {
        EXPECT_THAT(refusal_after([&key = key](auto& d) { d.erase(key); }),
                    HasSubstr("\"" + key + "\" is missing"));
    }
    EXPECT_EQ(refusal_after([](auto& d) { d["costs"]["stage_ns"][2].erase("F"); }),
              "p.json: costs.stage_ns[2]: \"F\" is missing; add it");
    EXPECT_EQ(refusal_after([](auto& d) { d["sizes"]["shards"][1].erase("exp_logits"); }),
              "p.json: sizes.shards[1]: \"exp_logits\" is missing; add it");
}

TEST(Profile, WithAnUnknownKeyIsRefusedWithTheKnownOnes) {
    EXPECT_EQ(refusal_after([](auto& d) { d["costs"]["stage_ns"][0]["f"] = 1; }),
              "p.json: costs.stage_ns[0]: unknown key \"f\"; use one of F, B, I, W, R");
    EXPECT_THAT(refusal_after([](auto& d) { d["hots"] = ""; }),
                HasSubstr("unknown key \"hots\"; use one of vocabpipe_profile, host, "));
}

TEST(Profile, FromBeforeThereWasRecomputationIsRead) {
    nlohmann::json document = nlohmann::json::parse(some_text());
    for (auto& stage : document["costs"]["stage_ns"]) stage.erase("R");
    for (auto& stage : document["sizes"]["stages"]) stage.erase("recomputed");
    const Profile profile = parse_profile(document.dump(), "p.json");
    EXPECT_EQ(profile.sizes.stages[2].saved, 1);
    EXPECT_EQ(profile.sizes.stages[2].recomputed, 0);
    for (uint16_t stage = 0; stage < profile.stages(); ++stage) {
        EXPECT_EQ(profile.costs.pass_ns(0, {Op::R, stage, 0}),
                  profile.costs.pass_ns(0, {Op::F, stage, 0}));
    }
}

TEST(Profile, OfGpusKeepsTheirCommunicationOrder) {
    const std::string path = temporary("order.json");
    Profile written = some_profile();
    for (const CommunicationOrder order : kCommunicationOrders) {
        written.costs.communication = order;
        write_profile(path, written);
        EXPECT_EQ(read_profile(path).costs.communication, order);
    }
    EXPECT_THAT(refusal_after([](auto& d) { d["costs"]["communication_order"] = "any"; }),
                HasSubstr("lanes, streams, launches, serial"));
}

TEST(Profile, SaysHowManyTensorRanksThereWereUnlessThereWereNone) {
    EXPECT_THAT(some_text(), ::testing::Not(HasSubstr("tensor_ranks")));
    Profile profile = some_profile();
    profile.sizes.tensor = 4;
    const std::string path = temporary("tensor_ranks.json");
    write_profile(path, profile);
    EXPECT_EQ(read_profile(path).sizes.tensor, 4);
    EXPECT_THAT(refusal_after([](nlohmann::json& j) { j["sizes"]["tensor_ranks"] = 3; }),
                HasSubstr("sizes.tensor_ranks: 3 does not divide the 16 of sizes.tokens"));
}

TEST(Profile, WithAKeyTwiceIsRefused) {
    std::string text = some_text();
    text.replace(text.find("\"host\""), 6, "\"date\"");
    EXPECT_EQ(refusal(text), "p.json: \"date\" appears twice in one object; keep one");
}

TEST(Profile, WithCostsThatCannotBeIsRefused) {
    EXPECT_EQ(refusal_after([](auto& d) { d["costs"]["stage_ns"][1]["B"] = -1; }),
              "p.json: costs.stage_ns[1].B: -1: must be an integer from 0 to 1099511627776");
    EXPECT_THAT(refusal_after([](auto& d) { d["costs"]["rank_ns"][0]["S"] = UINT64_MAX; }),
                HasSubstr("costs.rank_ns[0].S: 18446744073709551615: must be an integer"));
    EXPECT_THAT(refusal_after([](auto& d) { d["costs"]["rank_ns"][0]["S"] = 1.5; }),
                HasSubstr("costs.rank_ns[0].S: must be an integer"));
    EXPECT_THAT(refusal_after([](auto& d) { d["costs"]["bytes_per_ns"] = -0.5; }),
                HasSubstr("costs.bytes_per_ns: -0.5: must be a finite number of at least 0"));
    EXPECT_THAT(refusal_after([](auto& d) { d["costs"]["latency_ns"] = nullptr; }),
                HasSubstr("costs.latency_ns: must be an integer"));
    EXPECT_THAT(refusal_after([](auto& d) { d["costs"]["stage_ns"] = nlohmann::json::array(); }),
                HasSubstr("costs.stage_ns: is empty; add at least one entry"));
}

TEST(Profile, WhosePartsDoNotFitTogetherIsRefused) {
    EXPECT_EQ(refusal_after([](auto& d) { d["sizes"]["stages"].erase(0); }),
              "p.json: sizes.stages: has 3 entries, but costs.stage_ns has 4; both must have the "
              "same number");
    EXPECT_THAT(refusal_after([](auto& d) { d["rank_of_stage"][0] = 2; }),
                HasSubstr("rank_of_stage[0]: 2: must be an integer from 0 to 1"));
    EXPECT_THAT(refusal_after([](auto& d) { d["persistent_bytes"].erase(0); }),
                HasSubstr("persistent_bytes: has 1 entries, but costs.rank_ns has 2"));
    EXPECT_THAT(refusal_after([](auto& d) {
                    d["output_first_row"] = {0, 60, 53};
                }),
                HasSubstr("output_first_row: must start with 0 and must not decrease"));
    EXPECT_THAT(refusal_after([](auto& d) {
                    d["input_first_row"] = {0, 53};
                }),
                HasSubstr("input_first_row: has 2 entries; expected 3"));
    EXPECT_THAT(refusal_after([](auto& d) { d["model"]["layers_per_stage"][0] = 1; }),
                HasSubstr("layers_per_stage: adds up to 4 layers, but model.layers is 5"));
    EXPECT_THAT(refusal_after([](auto& d) { d["barriers"] = "three"; }),
                HasSubstr("barriers: \"three\" is not one of in_line, one, two"));
    EXPECT_THAT(refusal_after([](auto& d) { d["links"][0]["what"] = "ordered_sum"; }),
                HasSubstr("links[0].what: \"ordered_sum\" is not one of send, broadcast"));
    EXPECT_THAT(refusal_after([](auto& d) { d["derived"] = {"F"}; }),
                HasSubstr("derived[0]: \"F\" is not one of B, I, W"));
}

TEST(Profile, OfAnotherVersionOrKindIsRefused) {
    EXPECT_THAT(
        refusal_after([](auto& d) { d["vocabpipe_profile"] = 2; }),
        HasSubstr("vocabpipe_profile: version 2 is not supported; this program reads version 1"));
    EXPECT_THAT(refusal("{}"), HasSubstr("p.json: is not a profile"));
    EXPECT_THAT(refusal("[1]"), HasSubstr("p.json: is not a profile"));
    EXPECT_THAT(refusal(""), HasSubstr("p.json: is not valid JSON: parse error at line 1"));
    EXPECT_THAT(refusal("{\n\"host\": \n}"), HasSubstr("not valid JSON: parse error at line 3"));
    EXPECT_THAT(refusal(std::string(1000, '[')), HasSubstr("nested deeper than 32 levels"));
}

TEST(Profile, CutOffOrDamagedAnywhereIsRefusedOrReadNeverWorse) {
    const std::string text = some_text();
    for (size_t length = 0; length + 2 < text.size(); ++length) {
        EXPECT_THAT(refusal(text.substr(0, length)), HasSubstr("p.json: ")) << length;
    }
    for (size_t at = 0; at < text.size(); ++at) {
        for (const char replacement : {'9', '-', '"', ',', '{', ']', '\0', '\xff'}) {
            std::string damaged = text;
            damaged[at] = replacement;
            (void)refusal(damaged);  // anything but InputFileError would end the test
        }
    }
}

TEST(Profile, ThatCannotBeReadIsRefusedWithTheReason) {
    EXPECT_THAT([] { (void)read_profile("/no/such/profile.json"); },
                ::testing::ThrowsMessage<InputFileError>(
                    HasSubstr("/no/such/profile.json: cannot be read (No such file")));
    EXPECT_THAT([] { (void)read_profile(::testing::TempDir()); },
                ::testing::ThrowsMessage<InputFileError>(HasSubstr("cannot be read")));
}

}  // namespace
}  // namespace vocabpipe::testing
