// Tagged sentences to try Probe with: many words are a noun in one sentence and a verb or an adjective in another, so that
// their tags cannot be read from the word alone.

const TAGGED = `
The/DET light/NOUN was/VERB warm/ADJ
A/DET light/ADJ wind/NOUN blew/VERB
They/PRON light/VERB the/DET fire/NOUN
We/PRON water/VERB the/DET plants/NOUN
The/DET water/NOUN was/VERB cold/ADJ
She/PRON plants/VERB a/DET tree/NOUN
The/DET plants/NOUN need/VERB water/NOUN
He/PRON felt/VERB a/DET need/NOUN
A/DET long/ADJ walk/NOUN followed/VERB
They/PRON walk/VERB to/ADP the/DET river/NOUN
We/PRON long/VERB for/ADP rain/NOUN
The/DET rain/NOUN fell/VERB on/ADP the/DET town/NOUN
They/PRON run/VERB in/ADP the/DET park/NOUN
The/DET run/NOUN was/VERB short/ADJ
He/PRON will/VERB park/VERB the/DET car/NOUN
The/DET park/NOUN was/VERB empty/ADJ
She/PRON will/VERB empty/VERB the/DET box/NOUN
A/DET box/NOUN stood/VERB by/ADP the/DET door/NOUN
They/PRON box/VERB in/ADP the/DET evening/NOUN
The/DET answer/NOUN was/VERB short/ADJ
We/PRON answer/VERB every/DET letter/NOUN
A/DET cold/ADJ evening/NOUN came/VERB
He/PRON caught/VERB a/DET cold/NOUN
The/DET old/ADJ play/NOUN began/VERB
The/DET children/NOUN play/VERB with/ADP water/NOUN
They/PRON dream/VERB of/ADP a/DET warm/ADJ house/NOUN
Her/DET dream/NOUN was/VERB strange/ADJ
We/PRON will/VERB house/VERB the/DET visitors/NOUN
The/DET visitors/NOUN visit/VERB the/DET museum/NOUN
Their/DET visit/NOUN was/VERB short/ADJ
A/DET paper/NOUN lay/VERB on/ADP the/DET table/NOUN
They/PRON paper/VERB the/DET walls/NOUN
The/DET walls/NOUN were/VERB white/ADJ
He/PRON will/VERB clean/VERB the/DET windows/NOUN
A/DET clean/ADJ window/NOUN shone/VERB
The/DET work/NOUN was/VERB hard/ADJ
They/PRON work/VERB in/ADP the/DET garden/NOUN
She/PRON will/VERB garden/VERB in/ADP spring/NOUN
The/DET lions/NOUN spring/VERB over/ADP the/DET fence/NOUN
A/DET warm/ADJ spring/NOUN came/VERB
They/PRON warm/VERB their/DET hands/NOUN
He/PRON hands/VERB her/PRON the/DET letter/NOUN
The/DET change/NOUN was/VERB small/ADJ
We/PRON change/VERB the/DET plan/NOUN
They/PRON plan/VERB a/DET party/NOUN
The/DET dry/ADJ leaves/NOUN fell/VERB
She/PRON leaves/VERB the/DET house/NOUN
They/PRON dry/VERB the/DET dishes/NOUN
The/DET cook/NOUN tasted/VERB the/DET soup/NOUN
We/PRON cook/VERB for/ADP the/DET children/NOUN
Its/DET taste/NOUN was/VERB strange/ADJ
They/PRON taste/VERB the/DET bread/NOUN
The/DET open/ADJ door/NOUN moved/VERB
We/PRON open/VERB the/DET shop/NOUN
They/PRON shop/VERB on/ADP Monday/NOUN
The/DET small/ADJ shop/NOUN closed/VERB
A/DET close/ADJ friend/NOUN called/VERB
They/PRON close/VERB the/DET gate/NOUN
His/DET call/NOUN woke/VERB us/PRON
We/PRON call/VERB the/DET doctor/NOUN
`;

export const EXAMPLE = {
  name: "words.conll",
  text: TAGGED.trim().split("\n").map((line) => `${line.split(" ").map((word) => word.replace("/", "\t")).join("\n")}\n.\tPUNCT\n`).join("\n"),
};
