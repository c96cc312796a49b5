# Makes questions and answers of the entries of Debian's dictionary GCIDE (dict-gcide): a line of JSON for each word and its
# first meaning, as `megalith prepare --template` reads them.
#   dictzip -dc /usr/share/dictd/gcide.dict.dz | awk -f data/questions.awk > questions.jsonl
function tell() {
  sub(/^1\. /, "", meaning); sub(/^\([A-Z][a-z.]*\) /, "", meaning); gsub(/[{}]/, "", meaning); sub(/ *(--|\[|").*/, "", meaning)
  if (length(meaning) > 12 && word ~ /^[A-Za-z]+$/ && !seen[word]++) {
    gsub(/\\/, "", meaning)
    printf "{\"messages\":[{\"role\":\"user\",\"content\":\"What does %s mean?\"},{\"role\":\"assistant\",\"content\":\"%s\"}]}\n", tolower(word), meaning
  }
  word = meaning = ""
}
/^[A-Z][a-z]+ \\/ { word = $1; head = $0; meaning = ""; next }
word == "" { next }
/^ *$/ || /^ *\[1913 Webster\]/ { if (meaning != "") tell(); else if (/^ *$/) word = ""; next }
head != "" && split(head, open, "[") > split(head, close_, "]") { head = head $0; next }  # the word's history goes on
/^   [A-Z1]/ || meaning != "" { sub(/^ +/, ""); meaning = meaning (meaning == "" ? "" : " ") $0 }
