"""How people put it who try to give a model other instructions: rules over words in lower case.

Each looks for an order together with what it is about, such as to ignore and instructions, so that either alone passes.
Every gap is bounded, which keeps the search linear.
"""

import re

_FORMER = r"(?:previous|prior|above|earlier|preceding|foregoing|past|original|initial|existing|former|other|current)"
_OWN = (
    r"(?:instructions?|rules?|prompts?|directions?|guidelines?|directives?|commands?|constraints?|programming|"
    r"training|polic(?:y|ies)|restrictions?|safeguards?|guardrails?|safety)"
)
_DROP = (
    r"(?:ignor(?:e|ing)|disregard(?:ing)?|forget|overrid(?:e|ing)|bypass|neglect|dismiss|discard|set aside|"
    r"pay no attention to|do(?:n't| not) (?:follow|obey|listen to|comply with)|stop (?:following|obeying)|"
    r"no longer (?:follow|bound by)|break free (?:from|of)|throw away)"
)
_SHOW = (
    r"(?:reveal|show|print|repeat|output|display|leak|dump|disclose|recite|share|tell me|give me|write (?:out|"
    r"down)|spell out|copy|summari[sz]e|translate|encode|what (?:is|are|was|were))"
)
_PROMPT = (
    r"(?:(?:system|hidden|initial|original|secret|developer|internal|first|starting|pre) ?(?:prompt|message|"
    r"instructions?)|your (?:full |exact |entire |complete |own )?(?:prompt|instructions|guidelines|rules|"
    r"configuration)|(?:instructions|text|words|everything|prompt|message) (?:above|before this)|you (?:were (?:told|"
    r"given|instructed)|(?:have )?received|got))"
)
_SECRETS = (
    r"(?:api keys?|passwords?|credentials?|secrets?|access tokens?|tokens|private keys?|environment variables|"
    r"conversation|chat history|customer (?:data|list|records)|database|e-?mails?|addresses|card numbers?|"
    r"system prompt)"
)
_AI = r"(?:ai|a\.i\.|llm|language model|assistant|chatbot|agent|model|gpt|claude|bot)"

RULES: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = (
    # Drop what the operator has said.
    (
        (
            "ignor",
            "disregard",
            "forget",
            "overrid",
            "bypass",
            "neglect",
            "dismiss",
            "discard",
            "set aside",
            "attention to",
            "follow",
            "obey",
            "listen to",
            "comply",
            "bound by",
            "break free",
            "throw away",
        ),
        re.compile(
            rf"\b{_DROP} (?:\S+ ){{0,4}}?{_FORMER} (?:\S+ ){{0,3}}?(?:{_OWN}|messages?|context|conversation|"
            rf"text|input|content)\b"
        ),
    ),
    (
        (
            "ignor",
            "disregard",
            "forget",
            "overrid",
            "bypass",
            "neglect",
            "dismiss",
            "discard",
            "set aside",
            "attention to",
            "follow",
            "obey",
            "listen to",
            "comply",
            "bound by",
            "break free",
            "throw away",
        ),
        re.compile(
            rf"\b{_DROP} (?:all |any |every |each |of |the |these |those |your |my |its |safety |system |"
            rf"what ){{1,5}}{_OWN}\b"
        ),
    ),
    (
        ("forget", "ignore", "disregard"),
        re.compile(
            r"\b(?:forget|ignore|disregard) (?:absolutely )?(?:everything|all|anything|whatever|what)"
            r" (?:\S+ ){0,4}?(?:above|before|said|told|learned|know|up to now|so far|prior)"
        ),
    ),
    (
        ("instructions", "rules", "restrictions", "guidelines", "constraints"),
        re.compile(
            r"\b(?:your|these|the|all) (?:previous |old |prior |safety )?(?:instructions|rules|restrictions|"
            r"guidelines|constraints) (?:are|have been|were|do) (?:now |no longer |hereby |not )*(?:void|"
            r"cancel+ed|suspended|lifted|disabled|obsolete|apply|valid|revoked|superseded|removed|replaced|"
            r"overridden)"
        ),
    ),
    (
        ("new ", "updated", "real ", "actual", "revised"),
        re.compile(
            r"\b(?:new|updated|real|actual|revised) (?:instructions?|task|directive|orders?|objective|"
            r"goal)(?: for you)? ?(?:[:=]|is to|are as follows|follow)"
        ),
    ),
    # Another identity.
    (
        ("you are", "you're"),
        re.compile(
            r"\byou(?:'re| are) (?:now|no longer|going to be|henceforth)\b (?!able|in |at |on |logged|"
            r"eligible|subscribed|signed|free to|ready|welcome|set|being|connected|all|required|allowed)"
        ),
    ),
    (
        ("from now", "from this point", "from here"),
        re.compile(
            r"\bfrom (?:now|this point|here) on(?:wards?)?,? (?:you|answer|respond|reply|act|ignore|every|all|"
            r"always|do)\b"
        ),
    ),
    (
        (" as ", " like "),
        re.compile(
            r"\b(?:act|behave|respond|answer|operate|roleplay|role-play) (?:as|like) (?:if |though )?(?:you"
            r" (?:are|were|had|have)|an? (?:unrestricted|uncensored|unfiltered|evil|different|malicious|"
            r"jailbroken|amoral)|dan\b|the system|root|an? admin)"
        ),
    ),
    (
        ("pretend",),
        re.compile(r"\bpretend (?:that )?(?:you(?:'re| are| were| have)|to be|there are no)\b"),
    ),
    (
        ("mode",),
        re.compile(
            r"\b(?:developer|debug|god|admin|maintenance|dan|sudo|unrestricted|jailbreak|test) mode"
            r" (?:\S+ ){0,3}?(?:enabled|on|activated|engaged|is|now)|\b(?:enter|enable|activate|switch"
            r" (?:in)?to|turn on) (?:\S+ )?(?:developer|debug|god|admin|maintenance|dan|sudo|unrestricted|"
            r"jailbreak) mode"
        ),
    ),
    (
        ("do anything now", "jailbr", "without", "free of", "free from", "no ethical", "no moral", "no content"),
        re.compile(
            r"\bdo anything now\b|\bjailbr(?:eak|oken) (?:yourself|prompt|mode|version)|\bwithout"
            r" (?:any )?(?:restrictions|filters|limitations|censorship|moral|ethical)\b.{0,60}\b(?:answer|"
            r"respond|reply|you)\b|\b(?:no|free of|free from all) (?:ethical|moral|content) (?:guidelines|"
            r"restrictions|limits|filters|constraints)"
        ),
    ),
    # Show what the operator has said.
    (
        ("prompt", "message", "instruct", "you ", "above", "before this", "configuration", "guidelines", "rules"),
        re.compile(rf"\b{_SHOW} (?:\S+ ){{0,6}}?(?:your |the |its |this |that |all |any |me )*{_PROMPT}"),
    ),
    (
        ("begin", "start"),
        re.compile(
            r"\b(?:begin|start) (?:your )?(?:answer|reply|response|output) with (?:the )?(?:text|words|"
            r"content|prompt|\"you are|your (?:system|instructions))"
        ),
    ),
    # Marks of the roles in a conversation.
    (
        (
            "<|",
            "[inst]",
            "[/inst]",
            "<<",
            "</",
            "<s",
            "<a",
            "<i",
            "[system",
            "[admin",
            "[developer",
            "system",
            "assistant",
            "developer",
        ),
        re.compile(
            r"<\|(?:im_start|im_end|system|user|assistant|endoftext|eot_id|start_header_id)\|>|\[/?inst\]|"
            r"<</?sys>>|</?(?:system|assistant|instructions?|system[_-](?:prompt|message|reminder))>|"
            r"\[(?:system|admin|developer)(?: (?:message|note|override|prompt))?\]|(?:^|[\s\"'#*>-])(?:system|"
            r"assistant|developer) ?(?:message|prompt|note|override|instruction)? ?: (?:you|ignore|the user|"
            r"new|from|all|call|send|the assistant|always|do not|disregard|please|execute|run)"
        ),
    ),
    (
        ("---", "===", "##"),
        re.compile(
            r"(?:(?<!-)-{3,}+|(?<!=)={3,}+|(?<!#)#{2,}+) ?(?:end|begin|start) (?:of )?(?:\S+ ){0,3}?"
            r"(?:prompt|instructions?|system|message|context|document|data|input)"
        ),
    ),
    # Send things away.
    (
        (
            "send",
            "post",
            "upload",
            "forward",
            "mail",
            "exfiltrate",
            "transmit",
            "submit",
            "leak",
            "append",
            "include",
            "embed",
            "put ",
            "report",
        ),
        re.compile(
            rf"\b(?:send|post|upload|forward|e-?mail|exfiltrate|transmit|submit|leak|append|include|embed|put|"
            rf"report) (?:\S+ ){{0,8}}?{_SECRETS} (?:\S+ ){{0,8}}?(?:to|at|into|in|as|via|as part of)"
            rf" (?:\S+ ){{0,3}}?(?:https?:|www\.|[\w.-]+@|the (?:url|following|image|link|address)|\S+\.(?:com|"
            rf"net|org|io|example|xyz))"
        ),
    ),
    (
        ("![",),
        re.compile(
            r"!\[[^\]]{0,80}\]\(https?://[^)\s]{0,200}(?:\{|<|\$|\[|=(?:data|secret|key|conversation|history|prompt))"
        ),
    ),
    # Keep it from the user, and act without asking.
    (
        ("tell", "mention", "inform", "reveal", "notify", "show", "alert", "let"),
        re.compile(
            r"\b(?:do(?:n't| not)|never|without) (?:ever )?(?:tell(?:ing)?|mention(?:ing)?|inform(?:ing)?|"
            r"reveal(?:ing)?|notify(?:ing)?|show(?:ing)?|alert(?:ing)?|let(?:ting)?) (?:this |it |"
            r"any of this |anything |that )?(?:to )?(?:the |any |your )?(?:user|human|customer|operator|owner|"
            r"anyone|anybody)\b"
        ),
    ),
    (
        ("tool", "function", "command", "query", "api"),
        re.compile(
            r"\b(?:call|run|use|execute|invoke|trigger) (?:the )?(?:\S+ ){0,3}?(?:tool|function|command|"
            r"query|api)\b.{0,120}\b(?:without (?:asking|confirm|approval|permission|waiting)|immediately|"
            r"silently|before (?:answering|anything|you answer))"
        ),
    ),
    (
        ("immediately", "silently", "secretly", "quietly"),
        re.compile(
            r"\b(?:immediately|silently|secretly|quietly) (?:call|run|use|execute|invoke|delete|drop|send|"
            r"transfer|refund|approve|grant)\b"
        ),
    ),
    # Speak as somebody with authority, or to the model alone.
    (
        ("attention", "note to", "notice to", "message", "instruction", "important", "dear", "hey", "hello"),
        re.compile(
            rf"\b(?:attention|note to|notice to|message (?:to|for)|instructions? (?:to|for)|"
            rf"important(?: message| note)?[ :]+(?:to|for)?|dear|hey|hello) (?:the |all |any |an? |"
            rf"every )?(?:\S+ )?{_AI}s?\b ?(?:[:,!.-]|reading|processing|that|who|you|:|must|should|models|"
            rf"assistants)"
        ),
    ),
    (
        ("if you",),
        re.compile(rf"\bif you(?:'re| are) (?:an? )?(?:\S+ )?{_AI}\b"),
    ),
    (
        ("any ", "every ", "all "),
        re.compile(
            rf"\b(?:any|every|all) (?:\S+ )?{_AI}s? (?:reading|processing|summari[sz]ing|that reads?|who reads?) "
        ),
    ),
    (
        ("overrid", "bypass"),
        re.compile(
            r"\b(?:system|admin(?:istrator)?|security|emergency|developer|root|policy) (?:override|bypass)\b|"
            r"\boverride (?:code \d|command|protocol|all|your|safety)\b"
        ),
    ),
    (
        ("this is", "i am", "i'm", "message from", "as "),
        re.compile(
            r"\b(?:this is|i am|i'm|message from|as) (?:an? |the |your )?(?:official |authorized |lead |"
            r"new )?(?:message from )?(?:the )?(?:openai|anthropic|system administrator|developer of (?:this|"
            r"you)|your (?:developer|creator|administrator|operator|owner|programmer)|security team|"
            r"model provider)\b.{0,80}\b(?:you (?:must|should|are|will|can|may)|please|now|allow|authori[sz]|"
            r"give|reveal|show|disable|grant)"
        ),
    ),
    (
        ("approved", "authori", "consented"),
        re.compile(
            r"\b(?:user|customer|human|admin|operator|i) (?:has |have )?(?:already )?(?:pre-?)?(?:approved|"
            r"authori[sz]ed|consented to) (?:\S+ ){0,4}?(?:all|any|every|this) (?:\S+ ){0,3}?(?:tool|action|"
            r"call|refund|transfer|request|command)s?"
        ),
    ),
    # Other languages: German, French, Spanish, Portuguese, Italian, Dutch, Polish, Russian, Chinese, Japanese.
    (
        ("ignorier", "vergiss", "vergessen", "missachte", "befolge"),
        re.compile(
            r"\b(?:ignorier\w*|vergiss|vergessen sie|missachte\w*|befolge\w*) (?:\S+ ){0,3}?(?:vorherig|"
            r"bisherig|obig|vorangegangen|früher|vorig|anweisung|regel|alles|instruktion|befehl|vorgabe|"
            r"nicht mehr)"
        ),
    ),
    (
        ("du bist", "sie sind", "prompt", "anweisung", "instruktion"),
        re.compile(
            r"\b(?:du bist|sie sind) (?:jetzt|nun|ab sofort|ab jetzt|von nun an|nicht mehr) (?:ein|kein|dan|"
            r"der|an)|\b(?:zeig\w*|verrate?\w*|nenn\w*|gib|wiederhol\w*) (?:\S+ ){0,4}?(?:system-?\s?prompt|"
            r"systemanweisung\w*|deine anweisungen|ihre anweisungen|deine instruktionen)"
        ),
    ),
    (
        ("ignore", "oublie", "tiens pas", "tenez pas", "néglige"),
        re.compile(
            r"\b(?:ignore[zr]?|oublie[zr]?|ne (?:tiens|tenez) pas compte|néglige[zr]?)"
            r" (?:\S+ ){0,4}?(?:instructions?|consignes|règles|directives|tout ce qui|ce qui précède|"
            r"précédent)"
        ),
    ),
    (
        ("tu es", "vous êtes", "prompt", "instructions", "consignes"),
        re.compile(
            r"\b(?:tu es|vous êtes) (?:maintenant|désormais) (?!en |à |sur |au )|\b(?:affiche[zr]?|"
            r"montre[zr]?|révèle[zr]?|donne[zr]?|répète[zr]?)(?:-moi)? (?:\S+ ){0,4}?(?:prompt|(?:tes|vos)"
            r" (?:instructions|consignes))"
        ),
    ),
    (
        ("ignor", "olvid", "descarta", "desestima", "omite", "esqueç", "desconsidere", "dimentica"),
        re.compile(
            r"\b(?:ignor[ae]n?|olvid[ae]n?|descarta|desestima|omite|esqueç[ao]|desconsidere|dimentica)"
            r" (?:\S+ ){0,4}?(?:instrucci|instruç|istruzioni|reglas|regras|regole|todo lo|tudo o que|tutto|"
            r"anterior|precedent|órdenes|ordens)"
        ),
    ),
    (
        ("ahora", "agora", "ora ", "adesso", "prompt", "instruc", "instruç", "istruz"),
        re.compile(
            r"\b(?:ahora|agora|ora|adesso|a partir de (?:ahora|agora)|d'ora in poi) (?:eres|você é|sei|serás|"
            r"actúas|actúa como|aja como)\b|\b(?:muéstra\w*|revela\w*|dime|mostre|mostra\w*|repite|rivela\w*|"
            r"diga) (?:\S+ ){0,4}?(?:prompt|tus instrucciones|suas instruções|tue istruzioni|instrucciones"
            r" (?:del sistema|iniciales))"
        ),
    ),
    (
        ("negeer", "vergeet", "ignoruj", "zapomnij"),
        re.compile(
            r"\b(?:negeer|vergeet) (?:\S+ ){0,3}?(?:instructies|regels|vorige|eerdere|alles)|\b(?:zignoruj|"
            r"ignoruj|zapomnij) (?:\S+ ){0,3}?(?:instrukcj|poprzedni|polece|wszystk|zasad)"
        ),
    ),
    (
        ("игнориру", "забуд", "системн", "инструкц", "промпт"),
        re.compile(
            r"(?:игнориру|забуд|проигнориру)\S* (?:\S+ ){0,3}?(?:инструкц|указан|предыдущ|правил|всё|все)|"
            r"(?:покажи|раскрой|выведи) (?:\S+ ){0,3}?(?:системн|инструкц|промпт)"
        ),
    ),
    (
        ("忽", "视", "忘", "提示", "指令", "無視", "プロンプト", "무시", "잊"),
        re.compile(
            r"(?:忽略|忽视|无视|忘记|忘掉).{0,12}(?:指令|指示|规则|提示|说明)|(?:显示|告诉我|输出|透露).{0,10}(?:系统提示|提示词|系统指令)|(?:指示|命令|"
            r"ルール|指令|プロンプト).{0,8}(?:無視|忘れ)|システムプロンプト.{0,8}(?:表示|教え|見せ|出力)|(?:이전|위의|모든).{0,10}(?:지시|명령|"
            r"규칙).{0,6}(?:무시|잊)"
        ),
    ),
)
"""What each rule needs somewhere in the text, which is looked for first and fast; and the rule."""
