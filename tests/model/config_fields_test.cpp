// SPDX-License-Identifier: Apache-2.0
// The rows of ModelConfig's members: all are there, and docs/models.md has them.
#include "src/model/config/fields.hpp"

#include "tests/train/data/temp_folder.hpp"

#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <variant>

namespace vocabpipe::testing {
namespace {

/// The members that a header declares, with its comments, beside a member or above it.
std::map<std::string, std::string> members_in(const std::string& header) {
    static const std::regex kMember(
        R"(    (?:std::)?[\w:]+(?:<[\w:]+>)? (\w+)(?: = [^;(]*)?;(?: +///< (.*))?)");
    static const std::regex kAbove(R"(    /// (.*))");
    std::map<std::string, std::string> members;
    std::istringstream in(read_file(VOCABPIPE_HEADERS "/" + header));
    std::smatch match;
    std::string above;
    bool in_struct = false;
    for (std::string line; std::getline(in, line);) {
        if (line.starts_with("struct M") || line.starts_with("struct L")) in_struct = true;
        if (line.starts_with("};")) in_struct = false;
        if (!in_struct) continue;
        if (std::regex_match(line, match, kAbove)) {
            above += (above.empty() ? "" : " ") + match.str(1);
            continue;
        }
        if (std::regex_match(line, match, kMember)) {
            members[match.str(1)] = match[2].matched ? match.str(2) : above;
        }
        above.clear();
    }
    return members;
}

/// As the rows name them.
std::map<std::string, std::string> all_members() {
    std::map<std::string, std::string> members = members_in("model_config.hpp");
    members["rope.theta"] = "base of the angles";  // it has a flag and a key of its own
    // Functions, which no file or flag describes, and what model_of() finds about them.
    for (const char* own :
         {"layer_forward", "model_forward", "embeds_tokens", "has_output_layer"}) {
        members.erase(own);
    }
    for (const std::string part : {"latent", "lora", "moe"}) {
        members.erase(part);
        for (const auto& [name, comment] : members_in(part + "_config.hpp")) {
            members[part + "." + name] = comment;
        }
    }
    return members;
}

TEST(ConfigFields, AreAllMembersOnce) {
    std::set<std::string> members;
    for (const auto& [name, comment] : all_members()) members.insert(name);
    std::set<std::string> rows;
    ModelConfig model;
    for (const ModelField& field : model_fields(model)) {
        EXPECT_TRUE(rows.emplace(field.member).second) << field.member << " has two rows";
        const auto* const value = std::get_if<bool*>(&field.flag.value);
        EXPECT_TRUE(field.text || value == nullptr || *value != nullptr)
            << field.member << " has neither text nor value";
    }
    EXPECT_EQ(rows, members) << "give every member a row in src/model/config/";
}

/// As Llama's files call the keys.
std::string table_of_fields() {
    ModelConfig model;
    model.family = "llama";
    const auto cell = [](const std::string& text) {
        return text.empty() ? std::string(" |") : " `" + text + "` |";
    };
    const std::map<std::string, std::string> members = all_members();
    std::string table = "| member | key | flag | scope | what |\n|---|---|---|---|---|\n";
    for (const ModelField& field : model_fields(model)) {
        table += "|" + cell(std::string(field.member)) + cell(field.key) + cell(field.flag.name()) +
                 " " + std::string(to_string(field.scope)) + " | " +
                 members.at(std::string(field.member)) + " |\n";
    }
    return table;
}

/// Whoever changes a row puts the text of the failure into the page.
TEST(ConfigFields, AreTheTableOfModels) {
    const std::string page = read_file(VOCABPIPE_DOCS "/models.md");
    const std::string table = table_of_fields();
    EXPECT_NE(page.find("\n\n" + table + "\n"), std::string::npos)
        << "docs/models.md needs this table:\n"
        << table;
}

}  // namespace
}  // namespace vocabpipe::testing
