// SPDX-License-Identifier: Apache-2.0
// The rows of ModelConfig's members: all are there, and docs/models.md has them.
#include "src/model/config/fields.hpp"

#include "tests/train/data/temp_folder.hpp"

#include <gtest/gtest.h>

#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace vocabpipe::testing {
namespace {

/// Adds the members that a header declares with four spaces in front, which functions have not.
void add_members(const std::string& header, const std::string& prefix,
                 std::set<std::string>& members) {
    static const std::regex kMember(R"(^    (?:std::)?[\w:]+(?:<[\w:]+>)? (\w+)(?: = [^;(]*)?;.*)");
    std::istringstream in(read_file(VOCABPIPE_HEADERS "/" + header));
    std::smatch match;
    bool in_struct = false;
    for (std::string line; std::getline(in, line);) {
        if (line.starts_with("struct M")) in_struct = true;
        if (line.starts_with("};")) in_struct = false;
        if (in_struct && std::regex_match(line, match, kMember))
            members.insert(prefix + match.str(1));
    }
}

TEST(ConfigFields, AreAllMembersOnce) {
    std::set<std::string> members{"rope.theta"};  // it has a flag and a key of its own
    add_members("model_config.hpp", "", members);
    add_members("moe_config.hpp", "moe.", members);
    EXPECT_EQ(members.erase("moe"), 1U);
    std::set<std::string> rows;
    ModelConfig model;
    for (const ModelField& field : model_fields(model)) {
        EXPECT_TRUE(rows.emplace(field.member).second) << field.member << " has two rows";
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
    std::string table = "| member | key | flag | scope | what |\n|---|---|---|---|---|\n";
    for (const ModelField& field : model_fields(model)) {
        table += "|" + cell(std::string(field.member)) + cell(field.key) + cell(field.flag.name()) +
                 " " + std::string(to_string(field.scope)) + " | " +
                 (field.about.empty() ? field.flag.help : field.about) + " |\n";
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
