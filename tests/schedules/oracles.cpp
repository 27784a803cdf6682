// SPDX-License-Identifier: Apache-2.0
#include "tests/schedules/oracles.hpp"

#include "tests/schedules/notation.hpp"

#include <algorithm>
#include <fstream>
#include <stdexcept>

namespace vocabpipe::testing {

namespace {

/// The members of "(0F7;7I3;7W3)": an I and its W that run as one are a B.
std::vector<Pass> pair_from(std::string_view text) {
    std::string members(text.substr(1));
    std::replace(members.begin(), members.end(), ';', ' ');
    std::vector<Pass> pair = passes_from(members);
    if (pair.size() > 1) {
        Pass& i = pair[pair.size() - 2];
        const Pass& w = pair.back();
        if (i.op == Op::I && w == Pass{Op::W, i.stage, i.microbatch}) {
            i.op = Op::B;
            pair.pop_back();
        }
    }
    if (pair.empty() || pair.size() > 2) {
        throw std::invalid_argument("pair " + std::string(text));
    }
    pair.front().with_next = pair.size() == 2;
    return pair;
}

std::vector<Pass> list_from(std::string_view text) {
    std::vector<Pass> list;
    while (!text.empty()) {
        const size_t open = std::min(text.find('('), text.size());
        for (const Pass& pass : passes_from(text.substr(0, open))) list.push_back(pass);
        text.remove_prefix(open);
        const size_t close = std::min(text.find(')'), text.size());
        if (text.empty()) break;
        for (const Pass& pass : pair_from(text.substr(0, close))) list.push_back(pass);
        text.remove_prefix(std::min(close + 1, text.size()));
    }
    return list;
}

/// Stages of a case without a placement are where they occur first.
std::vector<int> placement_of(const nlohmann::json& oracle,
                              const std::vector<std::vector<Pass>>& lists) {
    const auto given = oracle.find("placement_stage_to_rank");
    if (given != oracle.end()) return given->get<std::vector<int>>();
    std::vector<int> rank_of_stage(oracle.at("p").get<size_t>(), -1);
    for (size_t rank = 0; rank < lists.size(); ++rank) {
        for (const Pass& pass : lists[rank]) {
            if (pass.stage >= rank_of_stage.size()) rank_of_stage.resize(pass.stage + 1U, -1);
            int& owner = rank_of_stage[pass.stage];
            if (owner < 0) owner = static_cast<int>(rank);
        }
    }
    return rank_of_stage;
}

}  // namespace

const nlohmann::json& oracles() {
    static const nlohmann::json file = [] {
        std::ifstream in(VOCABPIPE_TEST_DATA "/schedule_oracles.json");
        return nlohmann::json::parse(in);
    }();
    return file;
}

Schedule schedule_of(const nlohmann::json& oracle) {
    Schedule schedule;
    schedule.ranks = oracle.at("p").get<int>();
    schedule.microbatches = oracle.at("m").get<int>();
    schedule.input = schedule.output = ShardMap::even(0, schedule.ranks);
    for (const auto& list : oracle.at("ranks")) {
        schedule.passes.push_back(list_from(list.get<std::string>()));
    }
    schedule.rank_of_stage = placement_of(oracle, schedule.passes);
    schedule.stages = static_cast<int>(schedule.rank_of_stage.size());
    return schedule;
}

std::vector<std::string> lists_of(const Schedule& schedule) {
    std::vector<std::string> lists;
    for (const std::vector<Pass>& passes : schedule.passes) {
        std::string text;
        bool second = false;
        for (const Pass& pass : passes) {
            if (!text.empty()) text += second ? ';' : ' ';
            if (pass.with_next) text += '(';
            text += to_string(pass);
            if (second) text += ')';
            second = pass.with_next;
        }
        lists.push_back(text);
    }
    return lists;
}

Schedule without_vocabulary(Schedule schedule) {
    for (std::vector<Pass>& list : schedule.passes) {
        std::erase_if(list, [](const Pass& pass) { return traits(pass.op).vocabulary; });
    }
    schedule.input = schedule.output = ShardMap::even(0, schedule.ranks);
    schedule.barriers = Barriers::in_line;
    return schedule;
}

PassCosts costs_of(const nlohmann::json& cost, int64_t latency) {
    PassCosts costs = PassCosts::uniform(1, 1, 1);
    auto& stage = costs.stage.at(0);
    stage[static_cast<size_t>(Op::F)] = cost.at("F").get<int64_t>();
    stage[static_cast<size_t>(Op::I)] = cost.at("I").get<int64_t>();
    stage[static_cast<size_t>(Op::W)] = cost.at("W").get<int64_t>();
    stage[static_cast<size_t>(Op::B)] = cost.at("I").get<int64_t>() + cost.at("W").get<int64_t>();
    costs.hop = latency;
    return costs;
}

}  // namespace vocabpipe::testing
