// SPDX-License-Identifier: Apache-2.0
// The table of keys in docs/profiles.md is what the reader knows: not one more, not one less.
#include "tests/schedule/small_profile.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/profile.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace vocabpipe::testing {
namespace {

using nlohmann::json;

/// "a.{b,c}[]" -> a.b[], a.c[]
std::vector<std::string> expanded(const std::string& key) {
    const size_t open = key.find('{');
    if (open == std::string::npos) return {key};
    const size_t close = key.find('}', open);
    std::vector<std::string> result;
    std::istringstream names(key.substr(open + 1, close - open - 1));
    for (std::string name; std::getline(names, name, ',');) {
        result.push_back(key.substr(0, open) + name + key.substr(close + 1));
    }
    return result;
}

/// The table's keys, and whether it may be absent.
std::map<std::string, bool> documented() {
    std::ifstream in(VOCABPIPE_DOCS "/profiles.md");
    std::map<std::string, bool> keys;
    for (std::string line; std::getline(in, line);) {
        if (!line.starts_with("| `")) continue;
        const std::string key = line.substr(3, line.find('`', 3) - 3);
        for (const std::string& one : expanded(key)) {
            EXPECT_TRUE(keys.emplace(one, line.find("*may be absent*") != std::string::npos).second)
                << one;
        }
        if (key.starts_with("links")) break;  // the last row
    }
    return keys;
}

/// Paths of all values that are not objects; a list of objects gives its entries' keys.
void collect(const json& from, const std::string& path, std::map<std::string, bool>& into) {
    if (from.is_object()) {
        for (const auto& [key, value] : from.items()) {
            collect(value, path.empty() ? key : path + "." + key, into);
        }
    } else if (from.is_array() && !from.empty() && from.front().is_object()) {
        for (const json& entry : from) collect(entry, path + "[]", into);
    } else {
        into[from.is_array() ? path + "[]" : path] = true;
    }
}

/// Takes a key away, in a list from its first entry.
void erase(json& from, std::string path) {
    json* at = &from;
    for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.')) {
        const std::string name = path.substr(0, dot);
        path = path.substr(dot + 1);
        at = name.ends_with("[]") ? &at->at(name.substr(0, name.size() - 2)).at(0) : &at->at(name);
    }
    if (path.ends_with("[]")) path.resize(path.size() - 2);
    ASSERT_EQ(at->erase(path), 1U) << path;
}

Profile complete_profile() {
    Profile profile = testing::small_profile();
    profile.costs = TableCosts::uniform(2, 2, 1000, 2000, 100);
    profile.costs.communication = CommunicationOrder::launches;
    profile.derived = {Op::I, Op::W};
    profile.cores = 2;
    profile.sizes.tensor = 2;
    profile.links = {{.what = Do::send, .ranks = 2, .bytes = 8, .ns = 100}};
    return profile;
}

TEST(ProfileKeys, AreAllDocumentedAndRequiredAsDocumented) {
    const std::string path = ::testing::TempDir() + "/profile_keys.json";
    write_profile(path, complete_profile());
    std::ifstream in(path);
    const json written = json::parse(in);
    std::map<std::string, bool> keys;
    collect(written, "", keys);
    const std::map<std::string, bool> table = documented();
    for (const auto& [key, any] : keys) EXPECT_TRUE(table.contains(key)) << key;
    for (const auto& [key, may_be_absent] : table) {
        ASSERT_TRUE(keys.contains(key)) << key;
        json without = written;
        erase(without, key);
        const auto parse = [&] { static_cast<void>(parse_profile(without.dump(), "p.json")); };
        if (may_be_absent) {
            EXPECT_NO_THROW(parse()) << key;
        } else {
            EXPECT_THROW(parse(), InputFileError) << key;
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
