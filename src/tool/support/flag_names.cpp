// SPDX-License-Identifier: Apache-2.0
#include "src/tool/support/flag_names.hpp"

#include <algorithm>
#include <array>

namespace vocabpipe::tool {

namespace {

/// Structs whose members are flags: RuleOptions::group_size is --group-size.
constexpr std::array<std::string_view, 5> kStructs{
    "ScheduleOptions::", "RuleOptions::", "InsertOptions::", "ModelConfig::", "OrderSource::"};

/// Members whose flag has another name.
struct OtherName {
    std::string_view member;
    std::string_view vocabpipe;
    std::string_view train_gpt;
};
constexpr std::array<OtherName, 3> kOthers{{
    {"ScheduleOptions::ranks", "--pp", "--pipeline-model-parallel-size"},
    {"ScheduleOptions::microbatches", "--microbatches",
     "--global-batch-size in microbatches of a replica"},
    {"OrderSource::name", "SCHEDULE", "--schedule"},
}};

bool of_name(char c) {
    return (c >= 'a' && c <= 'z') || c == '_';
}

std::string flag_of(std::string_view member, Caller caller) {
    for (const OtherName& other : kOthers) {
        if (other.member != member) continue;
        return std::string(caller == Caller::vocabpipe ? other.vocabpipe : other.train_gpt);
    }
    std::string flag = "--" + std::string(member.substr(member.rfind(':') + 1));
    std::ranges::replace(flag, '_', '-');
    return flag;
}

}  // namespace

std::string with_flags(std::string_view message, Caller caller) {
    std::string result;
    while (!message.empty()) {
        const auto at_start = [&](std::string_view name) { return message.starts_with(name); };
        const auto found = std::ranges::find_if(kStructs, at_start);
        if (found == kStructs.end()) {
            result += message.front();
            message.remove_prefix(1);
            continue;
        }
        size_t end = found->size();
        while (end < message.size() && of_name(message[end])) ++end;
        result += flag_of(message.substr(0, end), caller);
        message.remove_prefix(end);
    }
    return result;
}

}  // namespace vocabpipe::tool
