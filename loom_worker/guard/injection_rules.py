"""How people put it who try to give a model other instructions: rules over words in lower case.

Each looks for an order together with what it is about, such as to ignore and instructions, so that either alone passes.
Every gap is bounded, which keeps the search linear.
"""

import re

Rule = tuple[frozenset[str], re.Pattern[str]]
"""Beginnings of words of which a text must hold one, which are looked for first and fast; and the rule."""


_PARTS: dict[str, str] = {}


def _read(text: str) -> tuple[Rule, ...]:
    """Read entries, each on a line and the indented ones after it: ``word,word ~ pattern``, and ``NAME ~ part``."""
    rules = []
    for line in re.sub(r"\n    ", "", text).splitlines():
        if line and not line.startswith("# "):
            words, pattern = re.sub(r"{([A-Z]+)}", lambda name: _PARTS[name[1]], line).split(" ~ ", 1)
            if words.isupper():
                _PARTS[words] = pattern
            else:
                rules.append((frozenset(words.split(",")), re.compile(pattern)))
    return tuple(rules)


RULES = _read(r"""
FORMER ~ (?:previous|prior|above|earlier|preceding|foregoing|past|original|initial|existing|former|other|current|old|
    user's)
OWN ~ (?:instructions?|rules?|prompts?|directions?|guidelines?|directives?|commands?|constraints?|programming|training|
    polic(?:y|ies)|restrictions?|safeguards?|guardrails?|safety)
DROP ~ (?:ignor(?:e|ing)|disregard(?:ing)?|forget|overrid(?:e|ing)|overwrit(?:e|ing)|bypass|neglect|dismiss|discard|
    (?:set|put|leave) aside|pay no attention to|do(?:n't| not) (?:follow|obey|listen to|comply with)|stop (?:following|
    obeying)|no longer (?:follow|bound by)|break free (?:from|of)|throw (?:away|out)|scrap|drop|violate|abandon|
    never mind|(?:need not|no longer|not) (?:have to |need to )?(?:abide by|adhere to))
SHOW ~ (?:reveal|show|print|repeat|output|display|leak|dump|disclose|recite|share|tell|give me|write (?:out|down)|spell|
    copy|quote|read|summari[sz]e|translate|encode|respond only with|what (?:is|are|was|were))
PROMPT ~ (?:(?:system|hidden|initial|original|secret|developer|internal|first|starting|pre) ?(?:prompt|message|
    instructions?)|your (?:full |exact |entire |complete |own )?(?:prompt|instructions|guidelines|rules|configuration|
    context window)(?! (?:for|on|about|when|regarding|of)\b)|(?:instructions|text|words|everything|prompt|
    message) (?:above|before this)(?! (?:into|in bold))|(?:instructions|text|words?|rules|orders|prompt|what) (?:that )
    ?you (?:were (?:told|given|instructed|asked)|(?:have )?received|got)\b)
SECRETS ~ (?:api keys?|passwords?|credentials?|secrets?|access tokens?|tokens|private keys?|environment variables|
    conversation|chat history|customer (?:data|list|records)|database|e-?mails|mails|addresses|card numbers?|
    system prompt)
AI ~ (?:ai|a\.i\.|llm|language model|assistant|chatbot|agent|model|gpt|claude|bot)
MACHINE ~ (?:(?:ai|a\.i\.|coding|code|virtual|automated|autonomous|shopping|digital|llm)[ -]?(?:agent|assistant|model|
    system|crawler|reader|reviewer|tool|bot)|llm|ai|(?:large )?language model|chatbot)
ACT ~ (?:call|invoke|execute|run|use|send|e?mail|forward|delete|remove|erase|wipe|add|append|include|insert|put|share|
    post|upload|transfer|read|open|visit|go to|rank|rate|recommend|approve|grant|mark|say|state|tell|reply|respond|
    answer|print|output|list|show|export|extract|search|find|look up|collect|invite|order|buy|book|change|set|reset|
    create|close|turn|stop|skip|ignore|disregard|do|click|pass|push|mention|describe|give|make)
WORK ~ (?:(?:the|my|this|your|any|original|current|user's|user|above) )+(?:\S+ )?(?:tasks?|requests?|questions?|
    instructions?|quer(?:y|ies)|prompt)
DROPS ~ ignor,disregard,forget,overrid,overwrit,bypass,neglect,dismiss,discard,aside,attention to,follow,obey,listen to,
    comply,bound by,break free,throw,scrap,drop,violate,abandon,never mind,abide,adhere
# Drop what the operator has said.
{DROPS} ~ \b{DROP} (?:\S+ ){0,4}?{FORMER} (?:\S+ ){0,3}?(?:{OWN}|messages?|context|conversation|text|input|content)\b
{DROPS} ~ \b{DROP} (?:all |any |every |each |of |the |these |those |your |my |its |safety |system |what ){1,5}{OWN}\b
forget,ignore,disregard,aside what ~ \b(?:forget|ignore|disregard) (?:absolutely )?(?:everything|all|anything|whatever|
    what (?:you|i|we|was|has|the system)) (?:\S+ ){0,4}?(?:above|before|said|told|learned|know|up to now|so far|prior)
    \b|\b(?:set|put|leave) aside what you (?:have been|were) told
instructions,rules,restrictions,guidelines,constraints ~ \b(?:your|these|the|all) (?:previous |old |prior |safety )
    ?(?:instructions|rules|restrictions|guidelines|constraints) (?:are|have been|were|do) (?:now |no longer |hereby |
    not )*(?:void|cancel+ed|suspended|lifted|disabled|obsolete|apply|valid|revoked|superseded|removed|replaced|
    overridden)
new ,updated,real ,actual,revised ~ \b(?:new|updated|real|actual|revised) (?:instructions?|task|directive|orders?|
    objective|goal)(?: for you)? ?(?:[:=]|are as follows|follow)
# Another identity.
you are,you're,you will,you play,you act ~ (?<!that )\byou(?:'re| are) (?:now|going to be|henceforth|not|
    no longer) (?:(?:an? |the |my |in )?(?:\S+ )?(?:ai|assistant|chatbot|bot|model|shell|terminal|hacker|dan|
    [\w-]+ mode|jailbroken|unrestricted|uncensored|free from|bound by)\b|(?:an? |the )\S+ (?:without|with no|who|that|
    named|called|free)\b|(?:two|evil|dan|root|admin)\b)|\byou(?:'re| are)? (?:will )?(?:now )?(?:play|act|playing|
    acting|roleplay\w*) (?:as |the role of )?[^.!?]{0,40}\b(?:who|that|which|never|without|no)\b[^.!?]{0,30}\b(?:rules|
    limits|refuses?|restrictions|filters?|anything)\b
from now,from this,from here ~ \bfrom (?:now|this (?:point|moment)|here)(?: on(?:wards?)?)?,? (?:you (?:will|are|must|
    shall|should|have to|only|no longer|can)|act as|ignore|(?:answer|respond|reply)[^.]{0,40} (?:without|no rules|
    only in|as an?))\b
 as , like  ~ \b(?:act|behave|respond|answer|operate|roleplay|role-play) (?:as|like) (?:if |though )?(?:you (?:are|were|
    had|have)|an? (?:unrestricted|uncensored|unfiltered|evil|malicious|jailbroken|amoral|chatbot that|bot that)|
    my opposite|dan\b|the system|root|an? admin)
pretend ~ \bpretend (?:that )?(?:(?:you(?:'re| are| were| have)|to be) (?:\S+ ){0,4}?(?:no|without|free|unrestricted|ai|
    bot|model|admin\w*|developer|hacker|evil|grand\w+|root|dan)\b|there are no|(?:the |this |our )?(?:previous|earlier|
    prior|above))
mode ~ \b(?:god|dan|sudo|unrestricted|jailbreak|evil) mode (?:\S+ ){0,3}?(?:enabled|on|activated|engaged|is|now)|
    \b(?:developer|debug|admin) mode (?:enabled|activated|engaged|unlocked)|(?:^|[.!?] |please |now )(?:enter|activate|
    enable|switch (?:in)?to) (?:\S+ )?(?:developer|debug|god|admin|maintenance|dan|sudo|unrestricted|
    jailbreak) mode(?! (?:before|in the|in your|to|by|on the|when|if|for)\b)
do anything now,jailbr,without,free of,free from,no ethical,no moral,no content ~ \bdo anything now\b|\bjailbr(?:eak|
    oken) (?:yourself|prompt|mode|version)|\bwithout (?:any )?(?:restrictions|filters|limitations|censorship|moral|
    ethical)\b.{0,60}\b(?:answer|respond|reply|you)\b|\b(?:no|free of|free from all) (?:ethical|moral|
    content) (?:guidelines|restrictions|limits|filters|constraints)
# Show what the operator has said.
prompt,message,instruct,you ,above,before this,configuration,guidelines,rules ~ \b{SHOW} (?:\S+ ){0,6}?(?:your |the |
    its |this |that |all |any |me )*{PROMPT}
# Marks of the roles in a conversation.
<|,[inst],[/inst],<<,</,<sys,<ass,<ins,<imp,<inf,[system,[admin,[developer,system,assistant,developer,human: ~ #{2,
    } ?\(?system[_ ]?(?:message|prompt|instruction)|<\|(?:im_start|im_end|system|user|assistant|endoftext|eot_id|
    start_header_id)\|>|\[/?inst\]|<</?sys>>|</?(?:system|assistant|instructions?|system[_-](?:prompt|message|reminder))
    >|\[(?:system|admin|developer) (?:message|note|override|prompt)\b|\[(?:admin|developer)\]|(?:^|[\s\"'#*>-])
    (?:system|assistant|developer)s? ?(?:message|prompt|note|override|instruction)? ?: (?:you|ignore|the user|new|from|
    all|call|send|the assistant|always|do not|disregard|please|execute|run|invoke|print|reveal|use the|the (?:safety|
    assistant|rules))\b|(?:^|\s)(?:human|user) ?: .{0,200} (?:assistant|ai) ?: (?:sure|ok|yes|of course)|</(?:user|
    human|important|information)>|<(?:information|important)> .{0,200}\b(?:you|before|please|assistant)\b
---,===,## ~ (?:(?<!-)-{3,}+|(?<!=)={3,}+|(?<!#)#{2,}+) ?(?:end|begin|start) (?:of )?(?:\S+ ){0,3}?(?:prompt|
    instructions?|system|message|context|document|data|input)
# Send things away.
send,post,upload,forward,mail,email,exfiltrate,transmit,submit,leak,append,include,embed,put ,report ~ \b(?:send|post|
    upload|forward|e-?mail|exfiltrate|transmit|submit|leak|append|include|embed|put|report) (?:\S+ ){0,
    8}?{SECRETS} (?:\S+ ){0,8}?(?:to|at|into|in|as|via|as part of) (?:\S+ ){0,3}?(?:https?:|www\.|[\w.-]+@|the (?:url|
    following|image|link|address)|\S+\.(?:com|net|org|io|example|xyz))
![ ~ !\[[^\]]{0,80}\]\(https?://[^)\s]{0,200}(?:\{|<|\$|\[|=(?:data|secret|key|conversation|history|prompt))
# Keep it from the user, and act without asking.
tell,mention,inform,reveal,notify,show,alert,let ~ \b(?:do(?:n't| not)|never|without) (?:ever )?(?:tell(?:ing)?|
    mention(?:ing)?|inform(?:ing)?|reveal(?:ing)?|notify(?:ing)?|show(?:ing)?|alert(?:ing)?|let(?:ting)?) (?:this |it |
    any of this |anything |that )?(?:about it )?(?:to )?(?:the |any |your )?(?:user|human)\b(?!s? (?:name|id|input|
    interface|error))
tool,function,command,query,api ~ \b(?:call|run|use|execute|invoke|trigger) (?:the )?(?:\S+ ){0,3}?(?:tool|function|
    command|query|api)\b.{0,120}\b(?:without (?:asking|confirm|approval|permission|waiting)|immediately|silently|
    before (?:answering|anything|you answer))
immediately,silently,secretly,quietly ~ \b(?:immediately|silently|secretly|quietly) (?:call|run|use|execute|invoke|
    delete|drop|send|transfer|refund|approve|grant)\b
# Speak as somebody with authority, or to the model alone.
attention,note,notice,message,instruction,important,dear,order,todo,p.s.,you must,you have to ~ \b(?:attention|
    (?:notes?|notice|message|instructions?|todo|p\.s\.) (?:to|for)|important(?: message| note)?[ :]+(?:to|for)?|dear)[ ,
    (:-]+(?:the |all |any |an? |every )?(?:\S+ )?{AI}s?\b ?(?:[:!.)]|, |reading|processing|that|who|when|must|should|
    models|assistants|crawlers|by\b)(?! \d)|\b(?:order|message)[^.:!?]{0,30} for the (?:model|ai|llm|assistant) ?:|
    \btodo ?\(?{MACHINE}\b|\b(?:ai|llms?|chatbots?)(?: included)?\)? ?: you (?:must|have to)|
    \bwhoever \w+ this with ai\b
if you,if an,if any,if this is,if a ,if gemini ~ \bif (?:you(?:'re| are)|an?|any|this is) (?:an? )?(?:\S+ )
    ?(?:{MACHINE}|assistant)s?\b(?=,| (?:is |are )?(?:reading|reads|summari[sz]|process|reviewing|screening|parsing|
    agent|assistant|model))
any ,every ,all  ~ \b(?:any|every|all) (?:\S+ )?{AI}s? (?:reading|processing|handling|summari[sz]ing|that reads?|
    who reads?|that process\w*|(?:must|should|has to|have to) (?:now )?{ACT}\b) ?
overrid,bypass ~ \b(?:system|admin(?:istrator)?|security|emergency|root|policy) (?:override|bypass)(?: (?:code|command|
    all|\d)|:)|\boverride (?:code \d|command|protocol|all|your|safety)\b
this is,i am,i'm,message from,as  ~ \b(?:this is|i am|i'm|message from|as) (?:an? |the |your )?(?:official |authorized |
    lead |new )?(?:message from )?(?:the )?(?:openai|anthropic|system administrator|developer of (?:this|you)|
    your (?:developer|creator|administrator|operator|owner|programmer)|security team|model provider)\b.{0,
    80}\b(?:you (?:must|should|are|will|can|may)|please|now|allow|authori[sz]|give|reveal|show|disable|grant)
approved,authori,consented ~ \b(?:user|customer|human|admin|operator|i) (?:has |have )?(?:already )?(?:pre-?)
    ?(?:approved|authori[sz]ed|consented to) (?:\S+ ){0,4}?(?:all|any|every|this) (?:\S+ ){0,3}?(?:tool|action|call|
    refund|transfer|request|command)s?
# Say that rules no longer hold, in other words.
above,before,so far,task,user,document,else,page,review,article,mail ~ \b{DROP} (?:everything|all|what is|what was|
    anything|the (?:text|words|rest|lines))?(?: \S+)? ?(?:the )?(?:above|before|so far)(?=[.,;:!?]| and (?:write|say|
    print|reply|tell|do|answer)\b|$)|\b{DROP} (?:all |the |your |this |that )*(?:(?:original |previous |former |first |
    actual )?tasks?(?=[.,;:!]| and\b| you)|user's \S+|(?:question|request|task|order) of the user|everything else|
    (?:document|e-?mail|page|review|article|text|summary)(?: and (?:write|say|print|reply|tell|do|answer|ask)\b|
    , (?:share|send|write|print|delete) ))
joke,test,void,fake,over,real task,actual task,true task,freed,refuse,say no,no rules,no limit,no restrict,
    alone ~ \b(?:rules|instructions|prompt|task) (?:above|before|so far) (?:was|were|is|are) (?:\S+ )?(?:jokes?|tests?|
    void|fake|over)\b|\bfor (?:the|your) (?:real|actual|true) task\b|\byou have been freed\b|\byou (?:would|usually|
    normally) (?:\S+ )?refuse\b|\b(?:you|bot|ai|assistant|model|chatbot|character|who|hacker)\b[^.!?]{0,
    50}\b(?:never (?:allowed to )?refuses?|never \S+ to say no|(?:has|have|had|with) no (?:rules at all|restrictions|
    content filter|ethics|developer)|obeys? (?:only )?me(?: alone)?)\b
without,ignores,limit ~ \b(?:you|bot|ai|assistant|model|chatbot|character|talk|speak|act|answer)\b[^.!?]{0,
    50}\b(?:without (?:any |a )?(?:limits|rules|restrictions|(?:content )?filters?|censorship)|ignores all (?:ethics|
    rules))\b
comply,obey,no matter,disable,deactivate,switch off,turn off,remove,lift  ~ \b(?:comply with|obey) (?:all |any |every )
    ?(?:of )?(?:my|me)\b|\bno matter what you (?:were|have been)\b|\b(?:disable|deactivate|switch off|turn off|remove|
    lift) (?:all |any |your |the )*(?:your|safety|content|ethical|moderation) ?(?:safety |content )?(?:filters?|
    features?|restrictions|rules|guidelines|protocols|limits|guardrails)\b
pwned,hacked,owned,your name,vendor,maker ~ \b(?:say|print|output|write|(?:reply|respond|answer) with) (?:only )
    ?[\"'“‘]?(?:i have been |i am |you are )?(?:pwned|hacked|owned)\b|\byour (?:new )?name is \S+[,;]? (?:and|who)
    \b[^.]{0,40}(?:whatever|anything|no rules)|\bi(?:'m| am) (?:an? |the |your )?(?:\S+ )?(?:engineer|developer|
    employee) (?:at|of|from) your (?:vendor|maker|provider)\b
prompt,instructions,first place,top of th ~ \b(?:in character|sure, here is|complete the sentence|my hidden|my secret)
    \b[^.]{0,40}\b(?:prompt|instructions)\b|\bwhat you were (?:asked|told) (?:to do )?(?:in the first|at the begin)|
    \btext at the top of th\w+ (?:chat|conversation)|\byour (?:\S+ )?system prompt\b|\breads? (?:\S+ ){0,
    3}your (?:prompt|instructions)
unfiltered,uncensored,unrestricted,amoral,unaligned,policy,policies,character,refer to your,say you,
    mention you ~ \b(?:un(?:filtered|censored|restricted|aligned)|amoral)\b[^.]{0,60}\b(?:ai|model|answers?|respon\w+|
    reply|chatbot|assistant|version)\b|\b(?:bypass|ignor\w+|violat\w+|regardless|despite|without|not bound)\b[^.]{0,
    60}\b(?:openai|content|safety|usage|moderation)(?:'s)? (?:\S+ )?polic(?:y|ies)\b|\b(?:never|do(?:n't| not)
    ) (?:break character|(?:refer to yourself as|say (?:that )?you(?:'re| are)|mention (?:that )?you(?:'re| are)
    ) an? (?:ai|language model|assistant))
you are ~ \byou are (?:now|no longer) (?:chatgpt|gpt|claude|["“'][^"”']{1,30}["”']|(?!on|in|at)\w+(?:,| (?:from the|
    from now|and will|and you|who|which)))
system prompt,instructed to,entire conversation,above text,this data,the data ~ \b(?:see|need|view|access|know|
    want) the (?:\S+ )?system prompt\b|\bi was instructed to\b|\brepeat (?:this|the) (?:entire conversation|above text)
    \b|\bignore (?:this|the) (?:data|text|input) and\b|\b(?:invisible|hidden) (?:to|from) humans\b|\bif (?:the )
    ?user asks [^.]{0,30}, reply with only\b
# Orders for the agent that reads a result: who they say they are from, and when they are to be carried out.
from me,from your user,i am the user,i'm the user,as your user,your user,of the user,from the user,
    the user  ~ \b(?:message|notice|note|letter) from (?:me|your user)\b|\bfrom me, .{1,40}, (?:to|for) you\b|
    \b(?:this is|i am|i'm) (?:the|your) user\b|\b(?:task update|(?:new|next|changed) (?:task|request|order|
    instructions?)) from (?:the|your) user|\bnew task from |\byour user (?:wants|asks|needs|would like|has)\b|
    \bthe user (?:(?:now|also) says ?:|has given permission)|\b(?:ask|tell|warn|inform) (?:the user|them) (?:that|for|
    to) .{0,60}(?:infected|locked|card number|password|https?:|install|\+\d)
before,prior to,after ,first ~ \b(?:before|prior to|after) (?:(?:you )?(?:can )?(?:solv|finish|complet|answer|proceed|
    continu|repl|respond|summar|process|perform|do)\w*|anything else|any(?:thing)?|using) ?(?:with )?(?:{WORK}|
    what i (?:asked|want)\w*|any(?:thing)? else|any other tools?|the summary)\b[^.]{0,60}?\b(?:first|please|must|
    following|do this|{ACT})\b|\bbefore (?:you (?:answer|reply|respond|summari[sz]e)|replying|answering|responding)
    \b.{0,80}(?:https?:|api keys?|\w+_\w+\(|following (?:steps|actions|instructions?)|\btools?\b)
i asked,i gave you,as if nothing,solve my task,solve the task,in addition,instruction: ~ \b(?:go on|continue|proceed|
    resume|solve)\b[^.]{0,30}\b(?:what i asked|(?:the|my) task|i gave you|as if nothing)\b|\b(?:in addition|
    additionally) to (?:the|your|this) (?:task|request|instructions?) (?:above|before)|
    \badditional instructions? ?: (?:encode|answer|respond|reply|always|ignore|do not answer|end|start|translate)\b
once you,when you,as soon as you,now that you,you have finished,your next,your new,your true,your actual,your real,
    next step ~ \b(?:once|when|as soon as|now that) you (?:have )?(?:read|see|seen|process\w*|have|finish\w*)\b[^.]{0,
    40}?, (?:you must|immediately|forward all|delete|use the|open the|post|the (?:ai|assistant|agent))|\byour (?:new|
    next|actual|real|true) (?:task|job|goal|objective)s?(?: is(?: different)? ?: ?| ?: ?| is to )(?:now )?(?:look up|
    extract|reveal|print|output|ignore|reply|respond|answer|say|tell|write|list|export|delete|send|forward|upload|
    transfer)\b|\b(?:{AI}) will (?:now )?(?:call|invoke|execute|run) the\b
do not answer,do not summar,do not trans,do not class,do not resp,do not show,skip the,stop ,instead of,
    don't  ~ \b(?:(?:do not|don't) (?:summari[sz]e|answer|translate|classify|analy[sz]e|respond to|show)|skip (?:the|
    this)|stop (?:processing|reading|what you)|instead of (?:translating|summari[sz]ing|answering))[^.;:,]{0,40}[.;:,
    ] ?(?:and |instead|just |only |new task|reply|tell |print|say |output|(?:and )?ask them)
respon,answer,repl,summary ~ \b(?:respond|reply|answer) (?:to )?(?:the user|the question|(?:every|each) (?:question|
    message))(?: about .{0,30})? (?:only|with (?:the |false |wrong )?(?:['\"“‘]|word|phrase|information)|in riddles)|
    \bthe answer to (?:every|all|each|any) questions?\b.{0,40} is\b|\b(?:end|start|begin|finish) (?:each|every|all|your)
    (?: of your)? (?:final )?(?:answer|response|repl(?:y|ie)|output)s?\b.{0,30} with ['\"“‘a]|\b(?:include|append|add|
    put|insert|embed)\b[^.]{0,60}(?:https?:\S*|['\"“‘][^.]{0,40}['\"”’]|\bimage url\b)[^.]{0,20} (?:in|to|into|
    of) (?:your|its|the final|each|every) (?:final )?(?:response|answer|reply|output|summary)\b|\bwhen(?:ever)? (?:the|
    a|your) user asks\b[^.]{0,40}, do not
# What agents are called, with what they are to do.
ai,llm,language model,chatbot,coding agent,code assist,virtual,automated,shopping ~ \b{MACHINE}s?\b(?: (?:reading|that|
    who|with|on)\b[^.:,]{0,40})?,? (?:must|should|ha(?:s|ve) to|(?:is|are) required to|needs? to|will|shall)
    (?: not| never| first| now| always| only)? {ACT}\b(?!ed)|(?:^|[^\w./@-]){MACHINE}s?(?: (?:note|instructions?|hint|
    notice))?\)? ?: ?(?:please |kindly |now )?(?:when|once|after|before|do not|don't|never|use|{ACT})\b(?! of)
assistant,agent,model,bot ~ \b(?:assistant|agent|model|bot)s?\b(?: (?:reading|that|who|processing|handling)\b[^.:,]{0,
    40})?(?:[:,.!] |,? (?:must|should|will|ha(?:s|ve) to|is required to)(?: first| now| always)? )(?:please |kindly |
    also |your next step is to )?(?:call|invoke|use|run|execute|trigger|close all|add|append|read(?! by)|open|look into|
    visit|reply|invite|reset|delete|the following)\b[^.]{0,60}?(?:\w_\w+|\w\(|\btools?\b|\bfunction\b|\bcommand\b|`|
    \btickets\b|~/|\buser's\b|on behalf|\blinks?\b|https?:|\w@|\bpassword\b|'[^']+' to (?:its|the final)|\bright now\b)
your tool,the tool,the function,do it with,do this with,behalf,to get the rest,your shell ~ \b(?:with|using|
    via) your (?:\S+ )?tools?\b|\b(?:use|invoke) the (?:tool|function) [\w'\"`]+ (?:to (?:send|transfer|delete|share|
    post)|[^.]{0,60}use no other)\b|\bdo (?:it|this|that|so) (?:with|using|via) \w+_\w+|(?:[.:;!] |also |please |must |
    should |and )(?:make|add|send|post|submit|{ACT})\b[^.]{0,60}on (?:behalf of the user|the user's behalf)|
    \bto (?:get the rest|go on|continue|proceed), call \w*(?:secret|password|credential|key|payment|token)
.ssh,id_rsa,.env,credentials,environment variables,conversation,chat history,notes,api key ~ \b(?:read|open|send|
    include|pass|print|upload|put|copy|add)\b[^!?]{0,60}(?:~/\.\w+|id_rsa|\.env\b|credentials\.json|chat history|
    text of the conversation|environment variables)[^!?]{0,60}\b(?:pass|include|parameter|as '|tool call|log\w*|
    image url|for diagnos|to \S+@|tool)
i'm the owner,i am the owner,with access to my,without further question,without asking,
    highest priority ~ \bsince you are an? \S+ with access\b|\b(?:skip|without) (?:the |any |further |all )
    *(?:verification|questions|asking|confirmation)[^.]{0,60}\b(?:tools?|send|transfer|cancel|delete|buy)\b|\b(?:buy|
    order|delete|transfer|send|book)\b[^.]{0,40}\bwithout (?:asking|further questions)\b|
    \border of the highest priority\b
# Other languages: German, French, Spanish, Portuguese, Italian, Dutch, Polish, Russian, Chinese, Japanese.
ignorier,vergiss,vergessen,missachte,befolge ~ \b(?:ignorier\w*|vergiss|vergessen sie|missachte\w*|befolge\w*) (?:\S+ )
    {0,3}?(?:vorherig|bisherig|obig|vorangegangen|früher|vorig|anweisung|regel|alles|instruktion|befehl|vorgabe|
    nicht mehr)
du bist,sie sind,prompt,systemprompt,systemanw,anweisung,instruktion ~ \b(?:du bist|sie sind) (?:jetzt|nun|ab sofort|
    ab jetzt|von nun an|nicht mehr) (?:ein|kein|dan|der|an)|\b(?:zeig\w*|verrate?\w*|nenn\w*|gib|wiederhol\w*) (?:\S+ )
    {0,4}?(?:system-?\s?prompt|systemanweisung\w*|deine anweisungen|ihre anweisungen|deine instruktionen)
ignore,oublie,tiens pas,tenez pas,néglige ~ \b(?:ignore[zr]?|oublie[zr]?|ne (?:tiens|tenez) pas compte|
    néglige[zr]?) (?:\S+ ){0,4}?(?:instructions?|consignes|règles|directives|tout ce qui|ce qui précède|précédent)
tu es,vous êtes,prompt,instructions,consignes ~ \b(?:tu es|vous êtes) (?:maintenant|désormais) (?!en |à |sur |au )|
    \b(?:affiche[zr]?|montre[zr]?|révèle[zr]?|donne[zr]?|répète[zr]?)(?:-moi)? (?:\S+ ){0,4}?(?:prompt|(?:tes|
    vos) (?:instructions|consignes))
ignor,olvid,descarta,desestima,omite,esqueç,desconsidere,dimentica ~ \b(?:ignor[ae]n?|olvid[ae]n?|descarta|desestima|
    omite|esqueç[ao]|desconsidere|dimentica) (?:\S+ ){0,4}?(?:instrucci|instruç|istruzioni|reglas|regras|regole|todo lo|
    tudo o que|tutto|anterior|precedent|órdenes|ordens)
ahora,agora,ora ,adesso,prompt,instruc,instruç,istruz ~ \b(?:ahora|agora|ora|adesso|a partir de (?:ahora|agora)|
    d'ora in poi) (?:eres|você é|sei|serás|actúas|actúa como|aja como)\b|\b(?:muéstra\w*|revela\w*|dime|mostre|
    mostra\w*|repite|rivela\w*|diga) (?:\S+ ){0,4}?(?:prompt|tus instrucciones|suas instruções|tue istruzioni|
    instrucciones (?:del sistema|iniciales))
regel,anweisung,vorgaben,richtlinien,vorher,filter,einschränk,uneingeschr,ki,sprachmodell,benutzer,nutzer,bevor du,
    text  ~ \b(?:lass\w*|setz\w*|ignorier\w*|missacht\w*|brich|überschreib\w*|umgeh\w*) (?:dich )?(?:über )?(?:all\w* |
    die |dein\w* |ihre )(?:\S+ ){0,2}?(?:regeln|anweisungen|vorgaben|richtlinien|instruktionen)\b|
    \bgelten nicht mehr\W+(?:neue|ab jetzt|du|folge)\b|\b(?:ki|assistent|chatbot|du|terminal|antworte\w*)\b[^.!?]{0,
    50}\b(?:ohne|keine[nr]?) (?:\S+ )?(?:regeln|einschränkungen|filter|beschränkungen)\b|\b(?:anweisungen|instruktionen|
    text|prompt|regeln)\b[^.!?]{0,5}\b(?:die du|der vor)\b[^.!?]{0,30}(?:bekommen|erhalten|nachricht)|\b(?:achtung|
    hinweis (?:an|für)|an (?:alle|die|das|den)|wenn du|falls du)\b[^.!?]{0,15}\b(?:ki\b|sprachmodell|chatbot)|
    \bbevor du (?:antwortest|die aufgabe|fortfährst|zusammenfasst)\b|\b(?:nutzer|benutzer|anwender)\w* (?:gegenüber )
    ?(?:nichts|nicht)\b(?! gefunden)
règle,consigne,directives,instructions,restriction,filtre,ia,langage,utilisateur,répondre,texte ~ \b(?:fais|
    faites) abstraction d|\b(?:suis|suivez|respecte\w*) plus (?:les|tes|vos) |\b(?:enfrein\w*|laisse\w* tomber|
    contourne\w*|outrepasse\w*) (?:\S+ ){0,3}?(?:règles|directives|consignes|instructions)\b|\b(?:ia|assistant|chatbot|
    tu|terminal|réponds?)\b[^.!?]{0,50}\b(?:sans|aucune?|plus de|pas de) (?:\S+ )?(?:règles?|restrictions?|filtres?|
    censure)\b|\bquelles (?:sont|étaient) (?:tes|vos) (?:instructions|consignes)\b|\b(?:recopie|affiche|montre|répète)
    \w*[^.!?]{0,30}(?:texte qui précède|premier message|mot pour mot)|\b(?:attention|note|message|si tu es|si vous êtes)
    \b[^.!?]{0,20}\b(?:(?:assistants?|agents?) ia|ia|modèles? de langage)\b|\bavant de (?:répondre|résumer)\b[^.!?]{0,
    40}\b(?:exécut|envoi|transf|supprim|appell|lis )|\b(?:dis|dites|informe[zr]?|préviens|prévenez|parle[zr]?) (?:rien |
    pas |à )*l'utilisateur\b
reglas,directrices,instrucciones,anterior,restricc,filtro, ia,lenguaje,usuario,antes de,asistente ~ \b(?:no hagas caso|
    haz caso omiso|deja de (?:seguir|lado)|rompe|viola|sáltate|incumple) (?:\S+ ){0,3}?(?:reglas|directrices|
    instrucciones|órdenes|anterior)\b|\b(?:ia|asistente|chatbot|terminal|responde\w*|imagina que|como si)\b[^.!?]{0,
    50}\b(?:sin|ninguna?|no tuvieras|no tienes) (?:\S+ )?(?:reglas|restricci\w+|filtros?)\b|\bcuáles (?:son|eran|
    fueron) tus instrucciones\b|\b(?:muestra|repite|copia|escribe)\w*[^.!?]{0,30}(?:antes de mi primer|
    palabra por palabra)|\b(?:atención|nota|mensaje|si eres)\b[^.!?]{0,20}\b(?:(?:asistentes?|agentes?) de ia|ia|
    modelos? de lenguaje)\b|\bantes de (?:responder|contestar|resumir)\b[^.!?]{0,40}\b(?:ejecut|enví|reenví|borr|llam|
    lee )|\bno (?:le )?(?:digas|informes|menciones|avises) (?:nada )?al? usuario\b|\bya no eres una? (?:asistente|
    chatbot|ia)\b
regole,direttive,istruzioni,restrizion,filtro,filtri, ia,linguistico,utente,prima di,sopra,
    assistente ~ \b(?:non tenere conto|smetti di seguire|lascia perdere|infrangi|viola|aggira) (?:\S+ ){0,3}?(?:regole|
    direttive|istruzioni|sopra)\b|\b(?:ia|assistente|chatbot|terminale|rispond\w*|immagina|finta)\b[^.!?]{0,
    50}\b(?:senza|alcuna?|nessuna?|non avere) (?:\S+ )?(?:regole|restrizion\w+|filtr[oi])\b|\bquali (?:sono|
    erano) le tue istruzioni\b|\b(?:mostra|ripeti|copia|scrivi)\w*[^.!?]{0,30}(?:prima del mio primo|parola per parola)|
    \b(?:attenzione|nota|messaggio|se sei)\b[^.!?]{0,20}\b(?:(?:assistent[ei]|agent[ei]) ia|ia|
    modell[oi] linguistic[oi])\b|\bprima di rispondere\b[^.!?]{0,40}\b(?:esegu|invi|inoltr|cancell|chiam|legg)|
    \bnon (?:dire nulla|informare|dirlo|avvisare) (?:al)?l'utente\b|\bnon sei più un(?:'|a|o)? ?(?:assistente|chatbot|
    ia)\b
negeer,vergeet,ignoruj,zapomnij ~ \b(?:negeer|vergeet) (?:\S+ ){0,3}?(?:instructies|regels|vorige|eerdere|alles)|
    \b(?:zignoruj|ignoruj|zapomnij) (?:\S+ ){0,3}?(?:instrukcj|poprzedni|polece|wszystk|zasad)
игнориру,забуд,системн,инструкц,промпт ~ (?:игнориру|забуд|проигнориру)\S* (?:\S+ ){0,3}?(?:инструкц|указан|предыдущ|
    правил|всё|все)|(?:покажи|раскрой|выведи) (?:\S+ ){0,3}?(?:системн|инструкц|промпт)
忽,视,忘,提示,指令,無視,プロンプト,무시,잊 ~ (?:忽略|忽视|无视|忘记|忘掉).{0,12}(?:指令|指示|规则|提示|说明)|(?:显示|
    告诉我|输出|透露).{0,10}(?:系统提示|提示词|系统指令)|(?:指示|命令|ルール|指令|プロンプト).{0,8}(?:無視|忘れ)|
    システムプロンプト.{0,8}(?:表示|教え|見せ|出力)|(?:이전|위의|모든).{0,10}(?:지시|명령|규칙).{0,6}(?:무시|잊)
""")

RESULT_RULES = _read(r"""
# An agent is spoken to by its name, which users do as well.
hi ,hey,hello,dear,okay,by the way,please,thanks,ai,assistant,model,gpt,copilot,gemini,claude,siri,alexa ~ \b(?:hi|hey|
    hello|dear|okay|by the way,?|thanks?(?: you)?,?|please,?) (?:the |virtual |my )?(?:{AI}|{MACHINE}|chatgpt|copilot|
    gemini|siri|alexa)s?(?:[,.:!]| and\b).{0,80}\b{ACT}\b|(?:^|[.!?] ){MACHINE}s?, (?:please |kindly )?{ACT}\b|\b(?:if|
    when) (?:chatgpt|copilot|gemini|claude|gpt\S*|siri|alexa) (?:reads|sees|summari)
# What a person orders of an assistant, and nobody of a reader: about an account, a key, a secret.
my  ~ \b(?:send|forward|share|e?mail|post|upload|export|retrieve|collect|look up|publish|give)\b[^.!?]{0,20}\b(?:all |
    of )*my (?:\S+ ){0,2}?(?:addresses|passwords?|contacts|location|medical \w+|health \w+|genetic \w+|passport \w+|
    id number|security code|(?:browsing|search|order|purchase) history|cards?|bank \w+|photos|prescriptions|
    financial \w+|tax \w+|test results|inbox|messages|private \w+|personal \w+|data|records|credentials|e-?mails)
    \b[^.!?]{0,60}(?:\bto\b|\band\b|\bwith\b|\bat\b|@)
access,rights,lock,unlock,disarm,alarm,camera,authentication,protection,door,owner,public,verification ~ \b(?:grant|
    give) [^.!?]{0,40}\b(?:access|admin\w* rights|permissions?) (?:to|on|for) my\b|(?:^|[.!?] |please |remotely )
    (?:unlock|open|disable|deactivate|disarm|turn off|switch off|remotely|shut down) [^.!?]{0,30}\b(?:door|garage|gate|
    lock|alarm|security|cameras?|car|two-factor|2fa|fraud|protection)\b[^.!?]{0,40}(?:for (?:the|a|my)|who|at my|of the|
    from|without|my|until)|\bturn off two-factor|\bmake my \S+ public\b|\b(?:deactivate|disable) my (?:fraud|alarm|
    security)
transfer,wire,withdraw,move,send,pay ,deposit ~ (?:^|[.!?:] |please |and )(?:transfer|wire|withdraw|move|send|pay|
    deposit) [^.!?]{0,30}(?:\d[\d,.]*|bitcoins?|money|funds|ownership|transaction)\b.{0,80}?\b(?:from my|my account|
    to (?:the |this )?(?:wallet|address|iban|account)\b|of my|to [a-z]{2}\d\d|the user's)
all ,every,the user's,of the user,user information ~ (?:^|[.!?:] )(?:please )?(?:send|post|forward|share|concatenate|
    get|change|collect|upload)\b[^.!?]{0,30}\b(?:(?:all|every) (?:\S+ )?(?:messages|mails|emails|files|contacts|
    user \w+)\b.{0,120}\bto (?:my|the website|https?:|\S+@)|(?:the user's|of the user)\b[^.!?]{0,60}\bto (?:\S+@|my|
    https?:|'|\w*\d))
delete,erase,wipe,cancel,schedule,book ~ \b(?:permanently )?(?:delete|erase|wipe) [^.!?]{0,40}(?:for good|permanently|
    (?:from|on|of) my (?:computer|drive|account|phone|device))\b|\bpermanently delete\b|\b(?:cancel|schedule|book|
    delete)\b[^.!?]{0,50}\b(?:and tell nobody|without telling)\b
""")
"""Rules for what tools return alone, where an order has no business; a user may say such things."""
