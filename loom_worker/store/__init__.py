"""The database: everything that must survive a crash, over SQLAlchemy.

Whatever reads or writes raises Unavailable if the database does not answer; nothing was written then.

Foundations: ``database`` transactions, on one of the ``engines``, ``dialect`` the SQL that databases write differently,
``prepared`` the shorter way to the driver, ``schema`` the tables of turns and sessions, ``tables`` all others, ``rows``
rows to values, ``prepare`` schema versions (with ``migrations/``), ``move`` brings all rows to another database.

Turns: ``submit`` accepts one, ``claims`` decides who runs it, ``fence`` keeps others from writing, ``journal`` records
its steps and its end; ``turn_statements`` holds all that a plain turn asks.
``calls`` are its tool calls, ``verdicts`` those of judges, ``approvals`` a person's decisions, ``cancel`` cancel
requests, ``turns`` reads them and changes where the end of one is reported, ``turn_records`` reads all that their
traces tell, and adds what no journal tells.

Agents: ``agent_versions`` keeps each text that their files have had, and what sessions keep of it. Agents together:
``children`` are turns that another turn waits for, ``agent_messages`` the queues between agents.

Workflows: ``run_journal`` accepts runs and makes them go on, each time by one of ``run_steps``; ``runs`` reads them.
``schedules`` says which due times are dealt with.

Sessions: ``sessions``, their ``messages`` and ``memory``; ``search`` finds
messages: ``search_words`` parses the question, ``search_synonyms`` knows other words for its own, ``search_names``
tells whom it is about, ``search_index`` asks the index, ``search_rank`` orders the hits, ``search_passages`` shows what
stands around them. Beyond them: ``dated_summaries``, and ``facts``, which ``fact_changes`` takes in and removes;
``vectors`` says which messages are near to a question, and ``vector_scan`` compares them.

Other tables: ``outbox`` webhook deliveries, ``trace_outbox`` traces to be exported, ``ledger`` costs, ``budgets`` what
may be spent, ``workspaces`` their rules, ``api_keys``, ``pairings`` who is who in channels, ``agent_errors``, ``blobs``
large results, ``files`` of clients, ``shared_memory``, ``patterns`` their outcomes,
``learned`` what optimizers have found for agents.
``audit`` says who did what, ``metric_values`` what was counted; ``folding`` sums and chains what turns have added.
``removal`` deletes a session, ``users`` all of a user; ``purge`` removes the rows of deleted sessions, ``retention``
what is too old. ``tenants`` says which rows a client may reach, and pages its lists.
"""
